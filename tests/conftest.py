"""What the tests share: a hypothesis profile, their order, a check of error messages, tables, backbones, a model."""

from __future__ import annotations

import gc
from collections.abc import Callable
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import settings

from tefm.base.errors import TefmError
from tefm.tables.schema import Schema

if TYPE_CHECKING:
    from support.kept import Kept

    from tefm.model.estimator import TEFM

# the first call of a library is slow, whatever it does
settings.register_profile("tefm", deadline=None, max_examples=30)
settings.register_profile("whole", deadline=None, max_examples=100)
settings.load_profile("tefm")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, so that none of them is left over for the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow") is not None}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """What was imported stays for good: the garbage collection after each fit need not look through it again."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """At the end it does: some libraries report what is left as leaks."""
    gc.unfreeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Golden figures that were compared with nothing are not passed over in silence."""
    import goldens

    if goldens.not_compared:
        terminalreporter.write_line(
            f"golden: no file for {goldens.this_machine().stem}: no figures of models fitted here compared, only their "
            f"keys; {goldens.WRITE}=1 pytest tests/test_golden.py writes one"
        )


Explained = Callable[..., TefmError]


@pytest.fixture
def explained() -> Explained:
    """Check that a call ends in an error of the given kind that has a remedy and whose message has all the parts."""

    def check(kind: type[TefmError], call: Callable[[], Any], *parts: object) -> TefmError:
        with pytest.raises(kind) as caught:
            call()
        message = str(caught.value)
        for part in parts:
            assert str(part) in message, message
        assert caught.value.remedy, message
        return caught.value

    return check


DRUGS = ("insulin", "metformin", "aspirin", "statin", "heparin", "morphine")
STAYS = Schema.from_yaml("""
record: stay
entity: patient
time: day
time_fields: none
label: died
ignore: [note]
fields: {age: number, ward: category, drugs: {kind: set, delimiter: ;}}
""")


def stays(patients: int, seed: int = 0) -> pl.DataFrame:
    """Hospital stays, 1 to 3 per patient, with missing values; who got morphine in the last one died."""
    rng = np.random.default_rng(seed)
    rows = []
    for patient in range(patients):
        day = date(2024, 1, 1) + timedelta(days=int(rng.integers(300)))
        for _ in range(rng.integers(1, 4)):
            day += timedelta(days=int(rng.integers(1, 40)))
            ends = rng.random() < 0.4
            drugs = [*rng.choice(DRUGS[:-1], size=rng.integers(0, 4), replace=False), *DRUGS[-1:] * ends]
            rows.append(
                {
                    "patient": f"p{patient}",
                    "day": day.isoformat(),
                    "age": int(rng.integers(20, 90)) if rng.random() < 0.9 else None,
                    "ward": str(rng.choice(["surgery", "heart", "lung"])) if rng.random() < 0.9 else None,
                    "drugs": ";".join(drugs) or None,
                    "note": "slept well" if rng.random() < 0.5 else None,
                    "died": "yes" if ends else "no",
                }
            )
    return pl.DataFrame(rows)


@pytest.fixture(scope="session")
def kept(pytestconfig: pytest.Config) -> Kept:
    """Where fitted miniatures are stored; a test never changes one."""
    from support.kept import Kept

    assert pytestconfig.cache is not None, "pytest has a cache"
    return Kept(pytestconfig.cache.mkdir("miniatures"))


@pytest.fixture(scope="session")
def backbones(kept: Kept) -> dict[str, Path]:
    """A miniature of each family as a folder."""
    from support.miniatures import FAMILIES, miniature

    return {family: kept.folder_of(family, partial(miniature, family)) for family in FAMILIES}


#: Settings under which a miniature learns the stays by heart in a few seconds.
QUICK: dict[str, Any] = {
    "codes": {"levels": 2, "entries": 8, "latent": 8, "hidden": 16, "steps": 150, "learning_rate": 5e-3},
    "tune": {"learning_rate": 3e-3, "epochs": 2, "least": 40},
    "explanations": {"surrogate_steps": 40, "surrogate_hidden": 16, "questions": 300},
}
#: With the paper's masks.
MASKS: dict[str, Any] = {
    "rationale": {"surrogate_steps": 40, "surrogate_hidden": 16, "hidden": 16, "epochs": 2, "questions": 300}
}
#: Settings of a model that only predicts.
ONLY_PREDICTS: dict[str, Any] = {"explanations": "none"}


def quick(backbone: Path, schema: Schema = STAYS, **settings: Any) -> TEFM:
    """A model that is yet to be fitted."""
    from tefm.model.estimator import TEFM

    return TEFM(schema, backbone=str(backbone), device="cpu", **{**QUICK, **settings})


@pytest.fixture(scope="session")
def fitted(kept: Kept, backbones: dict[str, Path]) -> TEFM:
    """A model that knows the stays, with the paper's masks; tests leave it as it is."""
    return kept.made("stays", lambda: quick(backbones["llama"], **MASKS).fit(stays(200)))


@pytest.fixture(scope="session")
def fitted_again(kept: Kept, backbones: dict[str, Path]) -> TEFM:
    """A second fit of the same table with the same seed."""
    return kept.made("stays again", lambda: quick(backbones["llama"], **MASKS).fit(stays(200)))


@pytest.fixture(scope="session")
def fitted_with_questions(kept: Kept, backbones: dict[str, Path]) -> TEFM:
    """A model that also answers questions about the drugs of the next stay."""
    settings: dict[str, Any] = {"questions": [{"next": "drugs"}], "tune": {**QUICK["tune"], "steps": 20}}
    return kept.made("stays with questions", lambda: quick(backbones["llama"], **settings).fit(stays(150)))


@pytest.fixture(scope="session")
def flows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """90 segments of ten flows each, a third of them of each kind; attacks are faster."""
    from tefm_bench.datasets.cicids2017 import FIELDS

    rng = np.random.default_rng(0)
    label = np.repeat(rng.permutation(np.repeat(["BENIGN", "DDoS", "PortScan"], 30)), 10)
    fast = 1 + 3 * (label != "BENIGN")
    table = {field.name: rng.integers(0, 50, len(label)) * fast for field in FIELDS}
    path = tmp_path_factory.mktemp("flows") / "flows.parquet"
    pl.DataFrame({**table, "Label": label}).write_parquet(path)
    return path
