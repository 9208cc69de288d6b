"""Training: what learns and what must not, the same in parts and after a kill, and the best weights at the end."""

from __future__ import annotations

import copy
import gc
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from conftest import Explained
from support.miniatures import FAMILIES, miniature
from torch import Tensor

from tefm.base.errors import ArtefactError, SettingsError
from tefm.language import training_loop
from tefm.language.backbone import Backbone, open_backbone
from tefm.language.batches import Batch, Example, collate
from tefm.language.config import AlignConfig, TrainConfig, TuneConfig
from tefm.language.training_loop import _Run, target_loss, train
from tefm.language.vocabulary import CodeVocabulary, TokenIds, extend, start_rows

#: What tests set beside the settings, in small letters.
CONSTANTS = ("WEIGHT_DECAY", "PATIENCE", "SAVE_EVERY")
WORDS = CodeVocabulary.of("admission", levels=2, entries=6)
HEADS = [(family, tied) for family in FAMILIES for tied in (True, False)]
Weights = dict[str, Tensor]
Opened = Callable[..., tuple[Backbone, TokenIds]]


@pytest.fixture(scope="module", autouse=True)
def frozen_modules() -> Iterator[None]:
    """Every run of accelerate ends with a garbage collection; without the imported modules it takes no time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """A fresh backbone with codes whose rows differ."""

    @cache
    def prepared(family: str, tied: bool) -> tuple[Backbone, TokenIds]:
        backbone = open_backbone(miniature(family, tmp_path_factory.mktemp(family), tied=tied), device="cpu")
        ids = extend(backbone, WORDS)
        start_rows(backbone, ids, np.random.default_rng(0).normal(size=(12, 8)))
        return backbone, ids

    def fresh(family: str = "llama", tied: bool = True) -> tuple[Backbone, TokenIds]:
        backbone, ids = prepared(family, tied)
        return replace(backbone, model=copy.deepcopy(backbone.model)), ids

    return fresh


def weights(backbone: Backbone) -> Weights:
    return {name: weight.detach().clone() for name, weight in backbone.model.named_parameters()}


def assert_same(actual: Weights, expected: Weights) -> None:
    assert actual.keys() == expected.keys()
    for name, weight in expected.items():
        assert torch.equal(actual[name], weight), name


def assert_near(actual: Weights, expected: Weights) -> None:
    for name, weight in expected.items():
        torch.testing.assert_close(actual[name], weight, atol=1e-6, rtol=0, msg=name)


def batches(ids: TokenIds, size: int = 5) -> Callable[[int], Batch]:
    """Codes in, codes and words out; every step has other examples of other lengths."""

    def batch_of(step: int) -> Batch:
        rng = np.random.default_rng((7, step))
        examples = []
        for number in range(size):
            code = (np.array([0, 3]) + step * size + number) % 6  # every code is seen soon
            prompt = np.array([ids.begin, *ids.of(code), ids.end])
            answer = np.array([*rng.integers(20, 300, size=rng.integers(1, 6)), int(rng.choice(ids.all))])
            examples.append(Example.answering(prompt, answer))
        return collate(examples, pad=0)

    return batch_of


def trained(
    backbone: Backbone, ids: TokenIds | None, steps: int = 4, *, how: dict[str, Any] | None = None, **config: Any
) -> Any:
    constants = {name: config.pop(name.lower(), getattr(training_loop, name)) for name in CONSTANTS}
    average = config.pop("average", 0.0)
    settings = TrainConfig(**{"learning_rate": 1e-2, "recipe": "paper", **config})
    arguments = {"batch_of": batches(ids) if ids else None, "title": "testing", **(how or {})}
    with patch.multiple(training_loop, **constants), patch.object(TrainConfig, "average", average):
        return train(backbone, ids.all if ids else [], steps=steps, config=settings, **arguments)


# ---- several prompts with one beginning -----------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("soft", [False, True])
def test_prompts_that_share_their_beginning_have_the_loss_and_gradients_of_separate_ones(
    opened: Opened, family: str, soft: bool
) -> None:
    backbone, _ = opened(family)
    rng = np.random.default_rng(3)
    answers = [np.array([21]), np.array([22, 23])]
    separate, together = [], []
    for beginning, tails in ((6, (3, 5, 2)), (4, (4,)), (2, (1, 1))):
        start, branches = rng.integers(20, 300, beginning), []
        for number, length in enumerate(tails):
            tail, answer = rng.integers(20, 300, length), answers[number % 2]
            classes = (np.array([21, 22]), rng.dirichlet([1, 1])) if soft else None
            branches.append(Example.answering(tail, answer, classes))
            separate.append(Example.answering(np.concatenate([start, tail]), answer, classes))
        together.append(Example.branching(start, branches))
    gradients = []
    for examples in (separate, together):
        backbone.model.zero_grad()
        loss = target_loss(backbone.model, collate(examples, pad=0))
        loss.backward()
        gradients.append({name: weight.grad.clone() for name, weight in backbone.model.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, atol=2e-4, rtol=1e-3, msg=name)


# ---- what learns ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "tied"), HEADS)
def test_rows_alone_learn(opened: Opened, family: str, tied: bool) -> None:
    backbone, ids = opened(family, tied)
    before = weights(backbone)
    trained(backbone, ids, trains="rows", weight_decay=0.5)
    after = weights(backbone)
    assert after.keys() == before.keys()
    assert backbone.tied is tied
    assert type(backbone.model).__name__.endswith("ForCausalLM")
    tables = {"model.embed_tokens.weight", "lm_head.weight"} & before.keys()
    assert len(tables) == (1 if tied else 2)
    for name, weight in before.items():
        if name not in tables:
            assert torch.equal(after[name], weight), name
            continue
        assert (after[name][ids.all] != weight[ids.all]).any(dim=1).all(), name
        old = [row for row in range(len(weight)) if row not in ids.all]
        assert torch.equal(after[name][old], weight[old]), name


@pytest.mark.parametrize(("family", "tied"), HEADS)
def test_adapters_are_merged_and_old_words_stay(opened: Opened, family: str, tied: bool, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    backbone, ids = opened(family, tied)
    before = weights(backbone)
    trained(backbone, ids, trains="lora", rank=2, weight_decay=0.5)
    after = weights(backbone)
    assert after.keys() == before.keys()
    assert backbone.tied is tied
    for name, weight in before.items():
        if "embed_tokens" in name or "lm_head" in name:
            assert (after[name][ids.all] != weight[ids.all]).any(dim=1).all()
            assert torch.equal(after[name][: ids.first], weight[: ids.first])
            assert torch.equal(after[name][ids.end + 1 :], weight[ids.end + 1 :])
        else:
            assert torch.equal(after[name], weight) == (weight.ndim < 2), name  # norms stay, matrices move
    backbone.model.save_pretrained(tmp_path)
    again, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    prompt = torch.tensor([[5, 6, *ids.all]])
    with torch.no_grad():
        assert torch.equal(again(prompt).logits, backbone.model(prompt).logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_everything_learns(opened: Opened, family: str) -> None:
    backbone, ids = opened(family)
    before = weights(backbone)
    batch = batches(ids)(0)
    with torch.no_grad():
        loss = float(target_loss(backbone.model, batch))
    history = trained(backbone, ids, how={"batch_of": lambda step: batch}, steps=10)
    with torch.no_grad():
        assert float(target_loss(backbone.model, batch)) < 0.7 * loss
    assert all(not torch.equal(weight, before[name]) for name, weight in weights(backbone).items())
    assert not backbone.model.training
    assert (history.steps, history.stopped_at, history.resumed_from) == (10, 10, 0)
    assert [step for step, _ in history.loss] == list(range(1, 11))
    assert history.loss[0][1] == pytest.approx(loss / batch.targets, rel=1e-4)


def test_rows_without_codes(opened: Opened, explained: Explained) -> None:
    backbone, ids = opened()
    how = {"batch_of": batches(ids)}
    explained(SettingsError, lambda: trained(backbone, None, how=how, trains="rows"), "rows", "has none", "lora")


def test_only_matrices_decay(opened: Opened) -> None:
    """A step that learns nothing shows what decay alone does."""
    backbone, ids = opened()
    before = weights(backbone)
    nothing = batches(ids)(0)
    nothing = Batch(nothing.ids_BT, nothing.mask_BT, torch.full_like(nothing.labels_BL, -100))
    trained(backbone, ids, how={"batch_of": lambda step: nothing}, steps=1, weight_decay=0.5)
    for name, weight in weights(backbone).items():
        undecayed = weight.ndim < 2 or "embed_tokens" in name
        torch.testing.assert_close(weight, before[name] * (1 if undecayed else 1 - 0.5e-2), msg=name)


# ---- the same result ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("trains", "accumulate"), [("full", 3), ("full", 7), ("lora", 3), ("rows", 3)])
def test_parts_of_a_batch_change_nothing(opened: Opened, trains: str, accumulate: int) -> None:
    """5 examples: 3 parts are uneven, and of 7 parts two are empty."""
    runs = []
    for parts in (1, accumulate):
        backbone, ids = opened("qwen3")
        history = trained(backbone, ids, trains=trains, accumulate=parts, learning_rate=1e-4)
        runs.append((weights(backbone), history.loss))
    assert_near(runs[1][0], runs[0][0])
    np.testing.assert_allclose(runs[1][1], runs[0][1], rtol=1e-5)


def test_a_batch_of_too_many_tokens_is_computed_in_parts(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    largest, runs = [], []
    for most in (10_000, 24):
        tokens: list[int] = []
        monkeypatch.setattr("tefm.language.training_loop.PART_TOKENS", most)
        monkeypatch.setattr(
            "tefm.language.training_loop.target_loss",
            lambda model, batch, *rest, tokens=tokens: (
                tokens.append(batch.ids_BT.numel()) or target_loss(model, batch, *rest)
            ),
        )
        backbone, ids = opened("qwen3")
        history = trained(backbone, ids, learning_rate=1e-4)
        largest.append(max(tokens))
        runs.append((weights(backbone), history.loss))
    assert largest[1] <= 24 < largest[0]
    assert_near(runs[1][0], runs[0][0])
    np.testing.assert_allclose(runs[1][1], runs[0][1], rtol=1e-5)


@pytest.mark.parametrize(
    ("family", "trains"), [*((family, "full") for family in FAMILIES), ("qwen3", "lora"), ("gemma2", "rows")]
)
def test_activations_computed_again_change_nothing(opened: Opened, family: str, trains: str) -> None:
    runs = []
    for checkpointing in (False, True):
        backbone, ids = opened(family)
        trained(backbone, ids, steps=2, trains=trains, checkpointing=checkpointing, learning_rate=1e-4)
        assert not backbone.model.is_gradient_checkpointing
        runs.append(weights(backbone))
    assert_near(runs[1], runs[0])


def test_the_same_seed_gives_the_same_weights(opened: Opened) -> None:
    runs = []
    for seed in (1, 1, 2):
        backbone, ids = opened()
        trained(backbone, ids, trains="lora", rank=2, seed=seed)
        runs.append(weights(backbone))
    assert_same(runs[1], runs[0])
    assert any(not torch.equal(runs[2][name], weight) for name, weight in runs[0].items())


# ---- a killed run resumes -------------------------------------------------------------------------------------------


class KilledError(Exception):
    pass


def killed_at(batch_of: Callable[[int], Batch], at: int) -> Callable[[int], Batch]:
    def dying(step: int) -> Batch:
        if step == at:
            raise KilledError
        return batch_of(step)

    return dying


@pytest.mark.parametrize("average", [0.0, 0.9])
@pytest.mark.parametrize(("trains", "validated"), [("full", True), ("lora", True), ("rows", True), ("full", False)])
def test_a_killed_run_resumes_and_ends_with_the_same_weights(
    opened: Opened, tmp_path: Path, trains: str, validated: bool, average: float
) -> None:
    checkpoint = tmp_path / "run" / "checkpoint.pt"
    setting: dict[str, Any] = {"steps": 8, "trains": trains, "rank": 2, "save_every": 0, "checks": 4, "patience": 9}
    setting["average"] = average

    def attempt(kill: int | None) -> tuple[Weights, Any]:
        backbone, ids = opened()
        batch_of, validation = batches(ids), batches(ids)(100)

        def validate() -> float:
            return float(target_loss(backbone.model, validation))

        how: dict[str, Any] = {"batch_of": batch_of, "validate": validate if validated else None}
        if kill is None:
            history = trained(backbone, ids, how=how, **setting)
            return weights(backbone), history
        how |= {"checkpoint": checkpoint, "fingerprint": "data"}
        with pytest.raises(KilledError):
            trained(backbone, ids, how={**how, "batch_of": killed_at(batch_of, kill)}, **setting)
        assert checkpoint.is_file()
        backbone, ids = opened()
        history = trained(backbone, ids, how=how, **setting)
        return weights(backbone), history

    expected, whole = attempt(None)
    actual, resumed = attempt(5)
    assert resumed.resumed_from == 5  # between two checks: validation is measured at every second step
    assert_same(actual, expected)
    assert (resumed.loss, resumed.validation, resumed.best_step) == (whole.loss, whole.validation, whole.best_step)
    assert not checkpoint.exists()


def test_progress_advances_step_by_step(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, str | None]] = []

    @contextmanager
    def watched(*_: Any, **__: Any) -> Iterator[Callable[..., None]]:
        yield lambda steps, note=None: calls.append((steps, note))

    monkeypatch.setattr("tefm.language.training_loop.progress", watched)
    backbone, ids = opened()
    trained(backbone, ids, steps=6, checks=2, how={"validate": lambda: 0.25})
    assert [steps for steps, note in calls if note is None] == [1] * 6
    assert [note.partition(", ")[2] for _, note in calls if note] == ["validation 0.2500"] * 2


@pytest.fixture(scope="module")
def interrupted_once(opened: Opened, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    checkpoint = tmp_path_factory.mktemp("interrupted") / "checkpoint.pt"
    backbone, ids = opened()
    how = {"batch_of": killed_at(batches(ids), 3), "checkpoint": checkpoint}
    with pytest.raises(KilledError):
        trained(backbone, ids, how=how, save_every=0)
    return checkpoint.read_bytes()


@pytest.fixture
def interrupted(interrupted_once: bytes, tmp_path: Path) -> Path:
    """The checkpoint of a killed run."""
    checkpoint = tmp_path / "checkpoint.pt"
    checkpoint.write_bytes(interrupted_once)
    return checkpoint


@pytest.mark.parametrize(
    "other",
    [{"learning_rate": 1e-3}, {"steps": 5}, {"trains": "rows"}, {"how": {"fingerprint": "other data"}}],
    ids=["learning rate", "steps", "what learns", "data"],
)
def test_a_checkpoint_of_other_settings(
    opened: Opened, interrupted: Path, other: dict[str, Any], explained: Explained
) -> None:
    backbone, ids = opened()
    how = {"checkpoint": interrupted, **other.pop("how", {})}
    call = lambda: trained(backbone, ids, **{"save_every": 0, **other, "how": how})  # noqa: E731
    explained(SettingsError, call, interrupted, "other data or other settings", "delete")
    assert interrupted.is_file()


@pytest.mark.parametrize("content", [b"", b"no checkpoint", None])
def test_a_damaged_checkpoint(opened: Opened, interrupted: Path, content: bytes | None, explained: Explained) -> None:
    whole = interrupted.read_bytes()
    interrupted.write_bytes(whole[: len(whole) // 2] if content is None else content)
    backbone, ids = opened()
    call = lambda: trained(backbone, ids, save_every=0, how={"checkpoint": interrupted})  # noqa: E731
    explained(ArtefactError, call, interrupted, "cannot be read", "delete")


# ---- the average of the weights -------------------------------------------------------------------------------------


def test_the_average_of_the_weights_is_kept_and_training_goes_on_from_the_last_ones(opened: Opened) -> None:
    def run(average: float) -> tuple[Any, list[Weights], Weights]:
        backbone, ids = opened()
        checked: list[Weights] = []

        def validate() -> float:
            checked.append(weights(backbone))
            return -float(len(checked))  # the last is the best

        history = trained(backbone, ids, steps=12, average=average, checks=3, how={"validate": validate})
        return history, checked, weights(backbone)

    plain, (w4, w8, w12), last = run(0.0)
    assert_same(last, w12)
    averaged, (a4, a8, a12), kept = run(8 / 12)  # an average over 8 steps, to which every fourth adds
    assert_same(kept, a12)
    assert averaged.loss == plain.loss
    assert_near(a4, w4)
    assert_near(a8, {name: (w4[name] + w8[name]) / 2 for name in w8})
    assert_near(a12, {name: (a8[name] + w12[name]) / 2 for name in w12})


def test_a_run_of_a_few_steps_has_an_average_too(opened: Opened) -> None:
    runs = []
    for average in (0.0, 0.5):
        backbone, ids = opened()
        trained(backbone, ids, steps=3, average=average)
        runs.append(weights(backbone))
    assert_same(runs[1], runs[0])


# ---- the best weights -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trains", ["full", "lora", "rows"])
def test_training_stops_and_the_best_weights_stay(opened: Opened, trains: str) -> None:
    losses = [3.0, 1.0, 2.0, math.nan, 2.0, 0.0]
    backbone, ids = opened()
    seen: list[Tensor] = []

    def validate() -> float:
        assert not backbone.model.training
        with torch.no_grad():
            seen.append(backbone.model(torch.tensor([ids.all])).logits)
        return losses[len(seen) - 1]

    history = trained(backbone, ids, steps=12, trains=trains, rank=2, checks=6, patience=3, how={"validate": validate})
    assert (history.best_step, history.stopped_at, history.steps) == (4, 10, 12)
    assert history.validation == [(2, 3.0), (4, 1.0), (6, 2.0), (10, 2.0)]
    with torch.no_grad():
        torch.testing.assert_close(backbone.model(torch.tensor([ids.all])).logits, seen[1], atol=1e-4, rtol=0)
    assert not torch.allclose(seen[1], seen[-1], atol=1e-2)


@pytest.mark.parametrize("validated", [False, True])
def test_a_loss_that_is_no_number_takes_the_weights_back_and_halves_the_rate(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, validated: bool, caplog: pytest.LogCaptureFixture
) -> None:
    backbone, ids = opened()
    computed, rates = [], []
    update = _Run.update

    def broken(model: Any, batch: Batch, *rest: Any) -> Tensor:
        computed.append(batch)
        return target_loss(model, batch, *rest) * (math.nan if len(computed) == 5 else 1)

    def followed(run: _Run, batch: Batch) -> None:
        update(run, batch)
        rates.append(run.optimiser.param_groups[0]["lr"])

    monkeypatch.setattr("tefm.language.training_loop.target_loss", broken)
    monkeypatch.setattr(_Run, "update", followed)
    how = {"validate": lambda: 1 / len(computed)} if validated else {}
    monkeypatch.setattr(TrainConfig, "rate", lambda *_: 1.0)
    history = trained(backbone, ids, steps=8, checks=8, average=0.5, how=how)
    assert history.slowed == 1
    assert rates == pytest.approx([1e-2] * 5 + [5e-3] * 3)
    assert [step for step, _ in history.loss] == [1, 2, 3, 4, 6, 7, 8]
    assert all(math.isfinite(loss) for _, loss in history.loss)
    assert all(weight.isfinite().all() for weight in weights(backbone).values())
    assert f"at step 5: resuming from the weights of step {4 if validated else 0}" in caplog.text


def test_a_loss_that_stays_no_number(opened: Opened, explained: Explained, monkeypatch: pytest.MonkeyPatch) -> None:
    backbone, ids = opened()
    monkeypatch.setattr("tefm.language.training_loop.target_loss", lambda *of: target_loss(*of) * math.nan)
    error = explained(SettingsError, lambda: trained(backbone, ids, steps=10), "learning_rate")
    assert "at step 5" in str(error)


# ---- schedules ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (TrainConfig(recipe="paper"), [math.cos(math.pi * step / 40) ** 2 for step in range(20)]),
        (TuneConfig(), [0.5, 1.0, *(math.cos(math.pi * step / 36) ** 2 for step in range(18))]),
        (AlignConfig.preset("paper"), [(step + 1) / 20 for step in range(20)]),  # all of 20 steps are warm-up
    ],
)
def test_the_course_of_the_learning_rate(config: TrainConfig, expected: list[float]) -> None:
    assert [config.rate(step, 20) for step in range(20)] == pytest.approx(expected)


def test_the_papers_alignment_warms_up_over_500_steps_and_stays_there() -> None:
    config = AlignConfig.preset("paper")
    assert [config.rate(step, 6_000) for step in (0, 249, 499, 500, 5_999)] == pytest.approx([0.002, 0.5, 1, 1, 1])


def test_the_rate_reaches_the_weights(opened: Opened) -> None:
    """Adam's first step is as long as the learning rate, whatever the gradient."""
    backbone, ids = opened()
    before = weights(backbone)
    trained(backbone, ids, steps=1, learning_rate=1e-2, recipe="ours", weight_decay=0.0, trains="rows")
    moved = (weights(backbone)["model.embed_tokens.weight"] - before["model.embed_tokens.weight"]).abs().max()
    assert float(moved) == pytest.approx(1e-2, rel=0.01)  # a warm-up is never longer than the run


@pytest.mark.parametrize(
    ("config", "examples", "steps"),
    [
        (TrainConfig(epochs=3, batch=32), 100, 12),
        (TrainConfig(epochs=0.5, batch=10), 100, 5),
        (TrainConfig(least=150, batch=32), 100, 150),
        (TrainConfig(steps=7), 10_000, 7),
        (AlignConfig.preset("paper"), 64_000, 6_000),
        (TuneConfig.preset("paper"), 64_000, 10_000),
    ],
)
def test_how_many_steps_a_run_takes(config: TrainConfig, examples: int, steps: int) -> None:
    assert config.total_steps(examples) == steps


def test_a_class_that_is_certain_costs_what_its_answer_costs(opened: Opened) -> None:
    """The loss of probabilities over the classes is the mean of the losses of their answers, weighted by them."""
    backbone, _ = opened()
    answers = [np.array([7, 9]), np.array([8, 9])]
    prompts = [np.array([3, 4, 5]), np.array([6])]

    def loss(first: list[int], shares: list[list[float]] | None) -> float:
        classes = [None, None] if shares is None else [(np.array([7, 8]), np.array(share)) for share in shares]
        batch = collate(
            [Example.answering(p, answers[n], c) for p, n, c in zip(prompts, first, classes, strict=True)], pad=0
        )
        with torch.no_grad():
            return float(target_loss(backbone.model, batch))

    assert loss([0, 1], [[1, 0], [0, 1]]) == pytest.approx(loss([0, 1], None), rel=1e-5)
    # the tokens after the first are those of the answer that is written: here the same for both
    mixed = loss([0, 0], [[0.25, 0.75], [1, 0]])
    with torch.no_grad():
        logits = backbone.model(torch.tensor([[3, 4, 5, 7]])).logits[0].log_softmax(dim=1)
        one = collate([Example.answering(prompts[1], answers[0])], pad=0)
        other = float(target_loss(backbone.model, one))
    expected = -0.25 * float(logits[2, 7]) - 0.75 * float(logits[2, 8]) - float(logits[3, 9]) + other
    assert mixed == pytest.approx(expected, rel=1e-4)
    # beside an answer whose classes are known, one without is certain
    uncertain = Example.answering(prompts[0], answers[0], (np.array([7, 8]), np.array([0.25, 0.75])))
    with torch.no_grad():
        beside = target_loss(backbone.model, collate([uncertain, Example.answering(prompts[1], answers[0])], pad=0))
    assert float(beside) == pytest.approx(expected, rel=1e-4)
