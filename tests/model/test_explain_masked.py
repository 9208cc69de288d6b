"""The paper's masks, from a table to rationales: the model, its bundle."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import MASKS, STAYS, Explained, quick, stays

from tefm.base.errors import InputError, NotFittedError, SettingsError
from tefm.explain.rationale_card import Rationale
from tefm.language.classifier import Classifier
from tefm.model.estimator import TEFM
from tefm.tables.sequences import Sequences

TABLE = stays(40, seed=1)


def test_the_check_is_what_the_model_itself_says_of_the_kept_values(fitted: TEFM) -> None:
    """Blank every value that was not kept in the *table*, and predict: the same probabilities as in the rationale."""
    checked = 0
    for one in fitted.explain_masked(TABLE, keep=0.3, of="present"):
        mine = TABLE.filter(pl.col("patient") == one.sequence)
        blanked = mine.clone()
        for number in range(one.records):
            kept = [finding for finding in one.findings if finding.record == number + 1]
            for name in ("age", "ward"):
                if name not in {finding.field for finding in kept}:
                    blanked[number, name] = None
            drugs = {finding.value for finding in kept if finding.field == "drugs"}
            members = [drug for drug in (mine[number, "drugs"] or "").split(";") if drug in drugs]
            blanked[number, "drugs"] = ";".join(members) or None
        codes = fitted.tokenizer_.vectoriser.transform(blanked)
        counted = [slot.kind == "number" and slot.field == "drugs" for slot in fitted.tokenizer_.coder.layout.slots]
        if codes[:, counted].any():
            continue  # how many drugs there were is a slot of its own that no table can blank alone
        p_Q = fitted.predict_proba(blanked)[0]
        assert one.alone.probabilities == pytest.approx(dict(zip(fitted.classes_, p_Q, strict=True)), abs=1e-6)
        checked += 1
    assert checked > 5


def test_what_is_said_of_all_features_is_the_prediction(fitted: TEFM) -> None:
    found = fitted.explain_masked(TABLE)
    predicted = fitted.predict_table(TABLE)
    assert [one.sequence for one in found] == predicted["patient"].to_list()
    assert [one.predicted for one in found] == predicted["predicted"].to_list()
    assert [one.full.probabilities["yes"] for one in found] == pytest.approx(predicted["p(yes)"].to_list(), abs=1e-6)
    assert [one.records for one in found] == predicted["records"].to_list()


def test_the_language_model_is_not_asked_twice(fitted: TEFM, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for a rationale and its check ask about the same codes."""
    asked: list[bytes] = []
    prompts = Classifier.prompts

    def spied(self: Classifier, codes: Sequences) -> list[np.ndarray]:
        written = prompts(self, codes)
        asked.extend(ids.tobytes() for ids in written)
        return written

    monkeypatch.setattr(Classifier, "prompts", spied)
    fitted.explain_masked(TABLE)
    assert asked and len(asked) == len(set(asked))


def test_a_rationale_grows_only_as_far_as_it_must(fitted: TEFM) -> None:
    for one in fitted.explain_masked(TABLE):
        assert one.passed or one.verdict == "default"
        assert one.passed == (one.retention.kept > 0), "nothing is kept where nothing argues for the answer"
        if one.passed:
            assert one.alone.says == one.predicted


def test_a_share_is_kept(fitted: TEFM) -> None:
    for over in ("record", "sequence"):
        for one in fitted.explain_masked(TABLE, keep=0.5, of="present", over=over):
            assert 0.25 <= one.retention.kept / max(one.retention.present, 1) <= 0.75 or one.retention.present < 4
    width = fitted.tokenizer_.coder.layout.width
    for one in fitted.explain_masked(TABLE, keep=2 / width, over="record"):
        assert max(Counter(finding.record for finding in one.findings).values(), default=0) <= 2


def test_some_sequences_only(fitted: TEFM, explained: Explained) -> None:
    assert [one.sequence for one in fitted.explain_masked(TABLE, entities=["p7", "p3"])] == ["p7", "p3"]
    explained(InputError, lambda: fitted.explain_masked(TABLE, entities=["p700"]), "p700", "patient")


def test_a_choice_that_does_not_exist_is_named(fitted: TEFM, explained: Explained) -> None:
    explained(SettingsError, lambda: fitted.explain_masked(TABLE, keep=1.5), "keep", "1.5")
    explained(SettingsError, lambda: fitted.explain_masked(TABLE, off="all"), "'off'", "of")
    explained(SettingsError, lambda: TEFM(STAYS, rationale={"epocks": 2}).fit(TABLE), "'epocks'", "'epochs'")


def test_it_survives_saving(fitted: TEFM, tmp_path: Path) -> None:
    again = TEFM.load(fitted.save(tmp_path / "model"), device="cpu")
    assert [one.to_json() for one in again.explain_masked(TABLE)] == [
        one.to_json() for one in fitted.explain_masked(TABLE)
    ]
    assert again.fitted.explainer.agreement_ == fitted.fitted.explainer.agreement_


def test_two_fits_with_one_seed_explain_alike(fitted: TEFM, fitted_again: TEFM) -> None:
    assert [one.to_json() for one in fitted_again.explain_masked(TABLE)] == [
        one.to_json() for one in fitted.explain_masked(TABLE)
    ]


def test_a_model_without_masks_says_so(backbones: dict[str, Path], fitted: TEFM, explained: Explained) -> None:
    model = quick(backbones["llama"]).set_params(tokenizer=fitted.tokenizer_).fit(stays(60))
    explained(NotFittedError, lambda: model.explain_masked(TABLE), "masks", "rationale: default")
    explained(NotFittedError, lambda: TEFM().explain_masked(TABLE), "fit")


@pytest.mark.all
def test_what_stands_beside_the_codes_is_judged_with_them(backbones: dict[str, Path]) -> None:
    """Free text stays in the prompt when slots are masked."""
    prompt = {"message": "{records}{text} died?"}
    schema = STAYS.model_copy(update={"text": ("note",), "ignore": ()})
    model = quick(backbones["llama"], schema, **MASKS, prompt=prompt).fit(stays(120))
    slots = model.preparation.slots(model.preparation.to_predict(TABLE))
    assert slots.texts is not None
    assert np.allclose(model.fitted.masked_model()(slots), model.predict_proba(TABLE), atol=1e-6)
    assert len(model.explain_masked(TABLE)) == len(slots)


def test_json_comes_back(fitted: TEFM) -> None:
    for one in fitted.explain_masked(TABLE)[:5]:
        assert Rationale.from_json(json.loads(json.dumps(one.to_json()))) == one
