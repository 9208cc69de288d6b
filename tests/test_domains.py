"""Several domains in one language model: what each answers, on disk and back, and which one a table belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import QUICK, STAYS, Explained, stays

from tefm.base.errors import InputError
from tefm.domains import Domains
from tefm.fit import TaskTable, extend_frame, fit_frames
from tefm.model import TEFM
from tefm.records.schema import Schema
from tefm.task import ModelConfig, Outcome, Split

FLOWS = Schema.from_yaml("{record: flow, label: attack, fields: {bytes: number, port: category, flags: number}}")
#: Codes and steps for two domains, without explanations.
SETTINGS: dict[str, Any] = {**QUICK, "explanations": "none", "rationale": "none", "align": "none"}


def flows(count: int, seed: int = 0) -> pl.DataFrame:
    """Network flows; those to port 6667 are attacks."""
    rng = np.random.default_rng(seed)
    port = rng.choice(["80", "443", "6667"], count)
    return pl.DataFrame(
        {
            "bytes": rng.integers(0, 1_000, count),
            "port": port,
            "flags": rng.integers(0, 5, count),
            "attack": np.where(port == "6667", "attack", "benign"),
        }
    )


def tables(backbone: Path, **settings: Any) -> dict[str, TaskTable]:
    """Two domains, yet to be fitted."""
    frames = {"stays": (STAYS, stays(200)), "flows": (FLOWS, flows(240))}
    return {
        name: TaskTable(TEFM(schema, backbone=str(backbone), device="cpu", **{**SETTINGS, **settings}), frame, Split())
        for name, (schema, frame) in frames.items()
    }


Fitted = tuple[Domains, dict[str, Outcome]]


@pytest.fixture(scope="module")
def joint(backbones: dict[str, Path]) -> Fitted:
    """Both domains in one model; tests leave it as it is."""
    given = tables(backbones["llama"])
    outcomes = fit_frames(given, compare=False)
    return Domains({name: table.model for name, table in given.items()}), outcomes


@pytest.fixture(scope="module")
def saved(joint: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return joint[0].save(tmp_path_factory.mktemp("domains") / "model")


NEW = {"stays": stays(40, seed=9).drop("died"), "flows": flows(40, seed=9).drop("attack")}


def test_one_language_model_learns_both_domains(joint: Fitted) -> None:
    """What decides each label is planted, and both are found."""
    domains, outcomes = joint
    stays_model, flows_model = domains["stays"].fitted, domains["flows"].fitted
    assert stays_model.classifier.backbone.model is flows_model.classifier.backbone.model
    for outcome in outcomes.values():
        assert (outcome.test.scores.auroc.value or 0) > 0.95
    assert stays_model.classifier.vocabulary.names[0] == "<stay_a_0>"
    assert flows_model.classifier.vocabulary.names[0] == "<flow_a_0>"
    ids = [of.classifier.ids for of in (stays_model, flows_model)]
    assert ids[0] is not None and ids[1] is not None
    assert ids[1].begin == ids[0].begin and not set(range(ids[1].first, ids[1].past)) & set(ids[0].all)


def test_domains_answer_the_same_after_save_and_load(joint: Fitted, saved: Path) -> None:
    loaded = Domains.load(saved, device="cpu")
    assert list(loaded) == ["stays", "flows"]
    assert loaded["stays"].fitted.classifier.backbone.model is loaded["flows"].fitted.classifier.backbone.model
    assert (saved / "language" / "config.json").is_file() and not (saved / "domains" / "flows" / "language").exists()
    for name, table in NEW.items():
        expected = joint[0][name].predict_proba(table)
        np.testing.assert_array_equal(loaded[name].predict_proba(table), expected)
        np.testing.assert_array_equal(TEFM.load(saved, device="cpu", domain=name).predict_proba(table), expected)


def test_a_table_finds_its_domain(joint: Fitted, explained: Explained) -> None:
    domains = joint[0]
    assert [domains.domain_of(table) for table in NEW.values()] == ["stays", "flows"]
    both = pl.concat([NEW["stays"].head(5), NEW["flows"].head(5)], how="horizontal")
    explained(InputError, lambda: domains.domain_of(both), "fit several domains: stays, flows", "--domain")
    neither = NEW["flows"].drop("port")
    explained(InputError, lambda: domains.domain_of(neither), "no domain has all its columns", "stays, flows")
    explained(InputError, lambda: domains["flow"], "no such domain", "did you mean 'flows'?")


# ---- a domain that is added later -----------------------------------------------------------------------------------

VISITS = Schema.from_yaml("{record: stayover, label: late, fields: {hours: number, day: category}}")


def visits(count: int, seed: int = 0) -> pl.DataFrame:
    """Visits; those on Sundays are late."""
    rng = np.random.default_rng(seed)
    day = rng.choice(["monday", "friday", "sunday"], count)
    late = np.where(day == "sunday", "late", "early")
    return pl.DataFrame({"hours": rng.integers(0, 24, count), "day": day, "late": late})


def test_a_domain_is_added_and_the_others_answer_the_same_to_the_bit(saved: Path, tmp_path: Path) -> None:
    domains = Domains.load(saved, device="cpu")
    before = {name: domains[name].predict_proba(table) for name, table in NEW.items()}
    config = domains.extension(ModelConfig.checked({**SETTINGS, "explanations": QUICK["explanations"]}))
    model = TEFM(VISITS, device="cpu", **dict(config))
    extended, outcome = extend_frame(domains, "visits", TaskTable(model, visits(240), Split()), compare=False)
    assert (outcome.test.scores.auroc.value or 0) > 0.95
    assert extended["visits"].fitted.classifier.vocabulary.stem == "sta"
    loaded = Domains.load(extended.save(tmp_path / "model"), device="cpu")
    for of in (domains, extended, loaded):
        for name, table in NEW.items():
            np.testing.assert_array_equal(of[name].predict_proba(table), before[name])
    new = visits(40, seed=9).drop("late")
    np.testing.assert_array_equal(loaded["visits"].predict_proba(new), extended["visits"].predict_proba(new))
    assert len(loaded["visits"].explain(new.head(1))) == 1
    for part in (saved / "language").iterdir():
        assert (tmp_path / "model" / "language" / part.name).read_bytes() == part.read_bytes(), part
    # the tensors of the language model are in memory once
    shared = {weight.data_ptr() for weight in loaded.backbone.model.parameters()}
    adapted = {weight.data_ptr() for weight in loaded["visits"].fitted.classifier.backbone.model.parameters()}
    assert shared < adapted
