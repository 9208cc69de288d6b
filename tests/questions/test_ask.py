"""A model that is asked in words: it learns what was planted, says what its answers are worth, and comes back whole."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import ONLY_PREDICTS, STAYS, Explained, quick, stays
from support.circling import QUESTIONS, SCHEMA, SETTINGS, WARDS, asked_model, circling
from support.kept import Kept

from tefm.base.errors import ArtefactError, InputError, NotFittedError, SettingsError
from tefm.explain.reasons import Donors, Reasoner
from tefm.model.estimator import TEFM
from tefm.model.run import fit_frame
from tefm.model.task import Split, Task
from tefm.questions.config import QuestionsConfig
from tefm.questions.question_data import questions_to_learn, teacher_of
from tefm.show.terminal import outcome_tables
from tefm.tables.readers.table import open_table

NEW = circling(60, seed=1)
FEVER, TIRED = "Next stay: fever?", "Is the patient tired?"


@pytest.fixture(scope="module")
def model(kept: Kept, backbones: dict[str, Path]) -> TEFM:
    return kept.made("circling", lambda: asked_model(backbones["llama"]).fit(circling(300)))


def auroc(p: Any, yes: Any) -> float:
    from tefm.scoring.metrics import auroc as of

    return of(np.asarray(p), np.asarray(yes))


@pytest.mark.slow
def test_the_answers_to_held_out_questions_change_nothing_that_is_learned(
    model: TEFM, backbones: dict[str, Path]
) -> None:
    data = asked_model(backbones["llama"]).prepared(open_table(circling(300))).given.data
    questions, coder, slots_ND = data.questions, model.fitted.coder, data.training.slots_ND
    assert questions is not None and questions.held_out_Q.any()
    codes = coder.encode(slots_ND), coder.encode(data.validation.slots_ND)
    answers_HQ = questions.training.answers_HQ.copy()
    answers_HQ[:, questions.held_out_Q] = 1 - answers_HQ[:, questions.held_out_Q]
    other = replace(questions, training=replace(questions.training, answers_HQ=answers_HQ))
    layout, learned, regressions = data.layout, [], []
    for of in (questions, other):
        teacher = teacher_of(of, slots_ND, layout, seed=0)
        learned.append(
            questions_to_learn(model.fitted.classifier, data.prompt, of, *codes, teacher, seed=0).training[0]
        )
        regressions.append(teacher.regressions)
    assert regressions[0] == regressions[1]
    assert (learned[0].classes_NQ == learned[1].classes_NQ).all()
    assert [ids.tolist() for ids in learned[0].prompts] == [ids.tolist() for ids in learned[1].prompts]


@pytest.mark.slow
def test_it_learns_what_was_planted(model: TEFM) -> None:
    """All but the last stay of each patient are asked about, and the last one has the answer."""
    number, last = pl.int_range(pl.len()).over("patient"), pl.len().over("patient") - 1
    before, after = NEW.filter(number < last), NEW.filter(number == last)
    trained = [entry.question for entry in model.fitted.book.trained if entry.question.source == "ward"]  # type: ignore[union-attr]
    answers = model.ask(before, [question.text for question in trained])
    for question in trained:
        p = answers.filter(pl.col("question") == question.text)["p(yes)"]
        assert auroc(p, after["ward"] == question.value) > 0.9, question.text
    fever = model.ask(before, FEVER)
    had = before.group_by("patient", maintain_order=True).agg(pl.col("signs").fill_null("").str.join(";"))
    assert (fever["remark"].is_not_null() == had["signs"].str.contains("f")).all()
    new = fever["remark"].is_null().to_numpy()
    has = after["signs"].fill_null("").str.contains("f").to_numpy()
    assert auroc(fever["p(yes)"].to_numpy()[new], has[new]) > 0.9
    tired = model.ask(NEW, TIRED)["p(yes)"]
    assert auroc(tired, after["tired"] == "yes") > 0.9
    assert ((tired > 0.5) == (after["tired"] == "yes")).mean() > 0.8  # and it is calibrated


def test_one_question_of_the_wards_is_held_out_and_says_so(model: TEFM) -> None:
    listed = model.questions_
    assert "questions_" in dir(model)
    held = listed.filter(pl.col("known") == "held out")
    assert held.height == 1 and held["question"][0].startswith("Next stay: Ward")
    assert listed.height == len(WARDS) + 4
    answer = model.ask(NEW, held["question"][0])
    assert set(answer["known"]) == {"held out"}
    new = model.ask(NEW, "Will it rain?")
    assert set(new["known"]) == {"new"}
    book = model.fitted.book
    assert book is not None
    assert set(new["auroc"]) == set(answer["auroc"]) == {book.new.auroc}
    assert "held out of training" in book.worth("Will it rain?") and "New question" in book.worth("Will it rain?")
    assert "The most similar trained question is “Next stay: fever?”" in book.worth("Next stay: a fever?")
    assert book.worth(FEVER).startswith("Trained question: AUROC")


def test_exactly_one_ward_is_next(model: TEFM) -> None:
    """Its probabilities are one distribution, whichever of them are asked for, and an explanation has the same."""
    wards = [text for text in model.questions_["question"] if "Ward" in text]
    answers = model.ask(NEW, wards)
    assert answers.group_by("patient").agg(pl.col("p(yes)").sum())["p(yes)"].to_numpy() == pytest.approx(1, abs=1e-6)
    alone = model.ask(NEW, wards[1])["p(yes)"]
    np.testing.assert_allclose(answers.filter(pl.col("question") == wards[1])["p(yes)"], alone, atol=1e-5)
    slots = model.preparation.slots(model.preparation.to_predict(NEW))
    np.testing.assert_allclose(model.fitted.answering(wards[1]).probabilities(slots)[:, 1], alone, atol=1e-4)


def test_case_and_blanks_do_not_make_a_new_question(model: TEFM) -> None:
    assert model.ask(NEW, " next stay:  FEVER ").equals(model.ask(NEW, FEVER))


def test_the_same_answers_alone_and_in_a_batch(model: TEFM) -> None:
    texts = [*model.questions_["question"], "Will it rain?"]
    together = model.ask(NEW, texts)
    assert together.columns == [
        "patient", "question", "p(yes)", "known", "auroc", "auroc_low", "auroc_high", "remark",
    ]  # fmt: skip
    assert together.height == 60 * len(texts)
    for text in texts:
        alone = model.ask(NEW, text)["p(yes)"]
        np.testing.assert_allclose(together.filter(pl.col("question") == text)["p(yes)"], alone, atol=1e-5)
    first = NEW.filter(pl.col("patient") == "p3")
    of_all = together.filter(pl.col("patient") == "p3")["p(yes)"]
    np.testing.assert_allclose(model.ask(first, texts)["p(yes)"], of_all, atol=1e-5)


def test_it_comes_back_from_disk_and_is_sealed(model: TEFM, tmp_path: Path, explained: Explained) -> None:
    folder = model.save(tmp_path / "model")
    again = TEFM.load(folder, device="cpu")
    assert again.fitted.book == model.fitted.book
    assert again.ask(NEW, [FEVER, "New?"]).equals(model.ask(NEW, [FEVER, "New?"]))
    body = json.loads((folder / "questions.json").read_text())
    body["entries"][0]["figure"]["auroc"] = 0.99
    (folder / "questions.json").write_text(json.dumps(body))
    explained(ArtefactError, lambda: TEFM.load(folder), "questions.json")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda body: body["entries"][0]["question"].update(value="moon"), "does not know"),
        (lambda body: body["entries"][0]["scaling"].update(temperature=0), "cannot be read"),
        (lambda body: body["entries"][0]["regression"].update(weights=[1.0]), "does not fit"),
        (lambda body: body["entries"][0]["regression"]["weights"].__setitem__(0, float("nan")), "does not fit"),
        (lambda body: body["entries"][0].update(share=1.5), "cannot be read"),
        (lambda body: body["entries"][0]["question"].update(text="Another?"), "by default"),
        (lambda body: body.update(entries=[]), "no question was trained"),
        (lambda body: body.update(code="import os"), "cannot be read"),
    ],
)
def test_a_forged_book_is_refused(change: Any, words: str, model: TEFM, tmp_path: Path, explained: Explained) -> None:
    from tefm.base.files import write_manifest
    from tefm.model.bundle import KIND

    folder = model.save(tmp_path / "model")
    body = json.loads((folder / "questions.json").read_text())
    change(body)
    (folder / "questions.json").write_text(json.dumps(body))
    (folder / "manifest.json").unlink()
    write_manifest(folder, KIND)
    explained(ArtefactError, lambda: TEFM.load(folder), words)


def test_every_question_is_explained(model: TEFM) -> None:
    """The planted cause is what speaks most for yes; explanations of a new question work too."""
    firsts = NEW.group_by("patient", maintain_order=True).first()
    patients = firsts.filter(pl.col("signs") == "c")["patient"].to_list()[:4]
    explanations = model.explain(firsts, question=FEVER, entities=patients)
    strongest = [max(one.effects, key=lambda influence: influence.change).finding for one in explanations]
    assert sum(finding.field == "signs" for finding in strongest) >= 3, [finding.field for finding in strongest]
    assert explanations[0].title.startswith(f"patient {patients[0]}: {FEVER} = ")
    assert explanations[0].of_class == "yes"
    assert all(influence.observed is None for influence in explanations[0].effects)  # nothing was counted
    (new,) = model.explain(firsts, question="Will it rain?", entities=patients[:1])
    assert new.classes == ("no", "yes")
    assert model._explainer is not None
    known = model._explainer._known
    assert set(known) == {FEVER, "Will it rain?"}
    kept = known[FEVER]
    again = model.explain(firsts, question=FEVER.lower(), entities=patients)
    assert known[FEVER] is kept  # it was learned once
    assert [one.answer.says for one in again] == [one.answer.says for one in explanations]
    # a batch of other sequences rounds differently
    now, before = ([one.answer.probabilities["yes"] for one in of] for of in (again, explanations))
    assert now == pytest.approx(before, abs=1e-6)


def test_without_a_label_the_first_question_is_predicted(model: TEFM) -> None:
    first = model.fitted.book.trained[0].question.text  # type: ignore[union-attr]
    np.testing.assert_allclose(model.predict_proba(NEW)[:, 1], model.ask(NEW, first)["p(yes)"], atol=1e-5)
    assert model.classes_.tolist() == ["no", "yes"]
    assert not model.fitted.config.task_aware  # there is no label that codes could learn from


@pytest.mark.slow
def test_beside_a_label_both_are_learned(backbones: dict[str, Path], tmp_path: Path) -> None:
    schema = STAYS.model_copy(update={"ignore": ("note", "slept")})
    frame = stays(300).with_columns(slept=pl.col("note").is_not_null())
    questions = [{"next": "drugs", "again": True}, {"column": "slept"}]
    model = quick(backbones["llama"], schema, questions=questions, **ONLY_PREDICTS).fit(frame)
    later = stays(80, seed=1).with_columns(slept=pl.lit(None, dtype=pl.Boolean))
    assert model.evaluate(later, resamples=0).scores.auroc.value > 0.9
    assert model.fitted.book is not None and len(model.fitted.book.entries) == 7
    again = TEFM.load(model.save(tmp_path / "model"), device="cpu")
    assert np.array_equal(again.predict_proba(later), model.predict_proba(later))
    assert again.ask(later, "slept?")["p(yes)"].is_between(0, 1).all()


@pytest.mark.slow
def test_a_task_of_questions_is_scored_next_to_lightgbm(backbones: dict[str, Path]) -> None:
    from rich.console import Console

    settings, short = {"hold_out": 0.3, "scored": 80}, {"learning_rate": 3e-3, "steps": 20}  # the fields know these
    model = asked_model(backbones["llama"], questions={**QUESTIONS, **settings}, tune=short, explanations="none")
    outcome = fit_frame(model, circling(400), Split())
    book = outcome.questions
    assert book is not None and book == model.fitted.book and book.measured_on == "test"
    assert book.held_out == 2 and book.in_place.auroc is not None
    fever = book.entry(FEVER)
    assert fever is not None and fever.figure.auroc is not None and fever.lightgbm is not None
    assert fever.figure.auroc > 0.9 and fever.lightgbm > 0.9
    console = Console(width=160)
    with console.capture() as capture:
        for part in outcome_tables(outcome):
            console.print(part)
    text = capture.get()
    for words in (
        FEVER,
        "LightGBM",
        "Questions held out of training",
        "New questions (2 held out)",
        "in place of",
    ):
        assert words in text
    assert "questions" in outcome.to_dict()


# ---- what it refuses ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "words"), [("", "empty"), (" ? ", "empty"), ("a" * 501, "501 characters")])
def test_questions_that_are_none(text: str, words: str, model: TEFM, explained: Explained) -> None:
    explained(SettingsError, lambda: model.ask(NEW, text), words)


def test_a_model_of_a_label_alone_is_not_asked(fitted: TEFM, explained: Explained) -> None:
    table = stays(5)
    explained(NotFittedError, lambda: fitted.ask(table, "Died?"), "does not answer questions", "questions:")
    explained(NotFittedError, lambda: fitted.explain(table, question="Died?"), "does not answer questions")
    explained(NotFittedError, lambda: fitted.questions_, "does not answer questions")


def test_one_record_per_sequence_has_no_next(backbones: dict[str, Path], explained: Explained) -> None:
    schema = SCHEMA.model_copy(update={"entity": None})
    model = quick(backbones["llama"], schema, **{**SETTINGS, "questions": [{"next": "ward"}]})
    explained(InputError, lambda: model.fit(NEW), "every sequence here has one", "entity: COLUMN")


def test_too_few_answers(backbones: dict[str, Path], explained: Explained) -> None:
    model = asked_model(backbones["llama"], questions={**QUESTIONS, "least": 10_000})
    explained(InputError, lambda: model.fit(NEW), "10000 training histories", "least")


def test_columns_of_answers_are_no_fields_of_an_inferred_schema(tmp_path: Path) -> None:
    circling(30).write_csv(tmp_path / "stays.csv")
    text = "{table: stays.csv, entity: patient, time: day, questions: [{column: tired}, {next: ward}]}"
    task = Task.from_yaml(text, folder=tmp_path)
    schema = task.schema_for(task.open())
    assert "tired" in schema.ignore and schema.field_reading("tired") is None


def test_without_a_gpu_the_fields_answer(
    backbones: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The language model learns nothing of the questions, and has no part in the answers."""
    with caplog.at_level("INFO", logger="tefm"):
        untuned = asked_model(backbones["llama"], questions={**QUESTIONS, "pairs": 0}).fit(circling(400))
    assert any("no fine-tuning (`pairs: 0` under `questions:`)" in line for line in caplog.messages)
    book = untuned.fitted.book
    assert book is not None and "tune" not in untuned.fitted.history
    assert {entry.share for entry in book.entries} == {0.0} and book.share == 0
    assert {entry.by_model for entry in book.entries} == {None}
    wards = [entry for entry in book.trained if entry.question.source == "ward"]
    assert all(entry.figure.auroc is not None and entry.figure.auroc > 0.95 for entry in wards)
    first = book.trained[0].question.text
    np.testing.assert_allclose(untuned.predict_proba(NEW)[:, 1], untuned.ask(NEW, first)["p(yes)"], atol=1e-9)
    again = TEFM.load(untuned.save(tmp_path / "model"), device="cpu")
    assert again.ask(NEW, [FEVER, "New?"]).equals(untuned.ask(NEW, [FEVER, "New?"]))
    assert np.array_equal(again.predict_proba(NEW), untuned.predict_proba(NEW))
    # the head reads slots, and so does the search: the cough is what settles a fever
    firsts = NEW.group_by("patient", maintain_order=True).first()
    patients = firsts.filter(pl.col("signs") == "c")["patient"].to_list()[:4]
    for one in again.explain(firsts, question=FEVER, entities=patients):
        strongest = max(one.effects, key=lambda influence: influence.change).finding
        assert strongest.field == "signs" and strongest.decoded is None
        assert one.verified and {finding.field for finding in one.settling.findings} == {"signs"}
    # what the search expects of look-alikes is what the model says of them
    assert again._explainer is not None
    asked = again._explainer.model(FEVER)
    parts, slots = asked.look_alikes, again.preparation.slots(again.preparation.to_predict(open_table(firsts[:1])))
    assert parts is not None
    masked_model = asked.masked_model()
    search = Reasoner(masked_model, parts.network, parts.surrogate, parts.population, parts.cases).search(slots, 1)
    keep_CTD = np.random.default_rng(0).random((5, *slots.x_ND.shape)) < 0.5
    expected = search.trial.answers(keep_CTD).numpy()
    donors_B = Donors.of(parts.population, len(slots.x_ND)).search[: expected.shape[1]]
    said = [masked_model(parts.population.look_alikes(slots, keep_TD, donors_B)) for keep_TD in keep_CTD]
    np.testing.assert_allclose(expected, np.stack(said), atol=0.02)


@pytest.mark.parametrize(("gpu", "texts", "pairs"), [(True, False, 320_000), (False, True, 20_000), (False, False, 0)])
def test_how_much_is_learned_depends_on_the_machine(gpu: bool, texts: bool, pairs: int) -> None:
    config = QuestionsConfig.of(QUESTIONS["asked"])
    assert config.pairs_for(gpu=gpu, texts=texts) == pairs
    assert config.model_copy(update={"pairs": 77}).pairs_for(gpu=gpu, texts=texts) == 77
