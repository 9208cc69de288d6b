"""Our figures beside published ones, from the stored tables."""

from __future__ import annotations

from tefm_bench.experiments import Setup
from tefm_bench.tables import TABLES, compared


def lines() -> dict[tuple[str, ...], dict[str, float]]:
    table = TABLES["published"].table(Setup(), lambda _: None)
    return {tuple(row.keys.values())[:4]: {name: of.mean for name, of in row.figures.items()} for row in table.rows}


def test_ours_stand_beside_what_was_published() -> None:
    found = lines()
    gru = found[(compared.ICU, "set-a → set-b", "AUROC", "GRU on slots")]
    assert set(gru) == {"ours", "hourly", "published"} and gru["published"] == 0.846
    assert found[("Diabetes130", "not the same data", "accuracy", "LightGBM on slots")]["published"] == 0.8117
    ours, alone = ((compared.ICU, "set-a → set-b", "AUROC", name) for name in compared.OURS[:2])
    assert found[ours] != found[alone], "with trees, and without"
    assert not TABLES["published"].needs(Setup()), "it is made without measuring"
