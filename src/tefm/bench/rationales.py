"""How faithful rationales are: rankings of slots are judged by the frozen language model on what they keep.

Shapes: S sequences, N records of all of them, D slots, Q classes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Setting

from tefm.bench.data import DATA, FLOWS
from tefm.bench.measurement import Bench, Found, Measurement
from tefm.bench.predictions import Prediction
from tefm.codes.coder import SlotCoder
from tefm.rationale.config import RationaleConfig
from tefm.rationale.extractor import Explainer
from tefm.rationale.masked_model import Keep, MaskedModel
from tefm.rationale.select import by_chance, top_k
from tefm.rationale.verify import faithfulness, smuggled, until_sufficient, verify
from tefm.records.sequences import Sequences

Ranking = NDArray[Any]
Rank = Callable[[Sequences], Ranking]
#: Sequences, and their class numbers.
Labelled = tuple[Sequences, NDArray[np.int64]]

#: Shares of the slots that are kept: of all of them (the paper's count), and of those present in a record.
OF_ALL, OF_PRESENT = (0.25, 0.20, 0.15, 0.10, 0.05), (0.30, 0.20, 0.10, 0.05)
OURS = "ours"
#: Ways that ask the language model itself for every subset are compared on a sample of the test sequences.
ASKING = ("KernelSHAP on the language model", "greedy search with the language model")


class Rationales(Measurement):
    """An extractor is learned on the training sequences; its ranking, and every other way's, are judged on the test."""

    KIND: ClassVar[str] = "rationales"

    reading: Prediction
    preset: Literal["default", "paper"] = "default"
    #: changes to the extractor's settings
    settings: dict[str, Any] = Setting(default_factory=dict)
    #: rank in every other way too
    others: bool = False
    #: test sequences, at most, and those on which the ways that ask the language model are compared
    most: int | None = None
    asked: int = 60

    def needs(self) -> tuple[Measurement, ...]:
        return (self.reading,)

    def measure(self, bench: Bench) -> Found:
        judge, coder, training, (test, labels) = _opened(self.reading, bench)
        name, split = self.reading.place
        test, labels = test.select(np.arange(len(test))[: self.most]), labels[: self.most]
        started = time.perf_counter()
        config = RationaleConfig.preset(self.preset, **{"seed": split, **self.settings})
        explainer = Explainer.fit(coder, training[0], judge, config)
        assert explainer.agreement_ is not None
        found: Found = {"seconds": time.perf_counter() - started, "agreement": asdict(explainer.agreement_)}
        p_SQ = judge(test)
        rankings = {OURS: explainer.rank(test, p_SQ)}
        if self.others:
            long = name in FLOWS  # ten records each: every question is a long one
            ways = other_ways(explainer, judge, training, judge.decide(p_SQ), split, samples=128 if long else 512)
            rankings |= {way: rank(test) for way, rank in ways.items()}
            found["growth"] = _growth(judge, test, {OURS: rankings[OURS]} if long else rankings)
            found["shuffled"] = _shuffled(judge, test, labels, rankings[OURS])
            found["sample"] = [] if long else _sampled(judge, test, labels, rankings, split, self.asked)
        found["rows"] = _judged(judge, test, labels, rankings)
        return found


def _opened(reading: Prediction, bench: Bench) -> tuple[MaskedModel, SlotCoder, Labelled, Labelled]:
    """The judge, its tokenizer, and the sequences to learn from and to be judged on."""
    assert reading.codes is not None, "text has no slots to keep"
    data, task = reading.codes.split_data(bench), DATA[reading.place[0]][0]
    fitted = reading.fitted(bench)
    assert fitted.coder is not None, "a model of codes"
    return fitted.masked_model, fitted.coder, data.sequences(task, "train"), data.sequences(task, "test")


def other_ways(
    explainer: Explainer,
    judge: MaskedModel,
    training: Labelled,
    labels_S: NDArray[np.int64],
    seed: int,
    *,
    samples: int,
) -> dict[str, Rank]:
    """Every other ranking of the sequences that were answered with `labels_S`.

    What is learned is learned from the training sequences and the judge's answers to them.
    """
    from tefm.bench import attribution as other
    from tefm.bench.attribution_models import fit_attention, fit_plain

    sequences, labels = training
    p_SQ = judge(sequences)
    said_S = judge.decide(p_SQ)
    log_p, layout = explainer.log_p, explainer.network.layout
    plain, pool = fit_plain(sequences, p_SQ, layout, seed=seed), fit_attention(sequences, p_SQ, layout, seed=seed)

    def answered(some: Sequences) -> NDArray[np.int64]:
        return labels_S[: len(some)]

    return {
        "random": lambda some: by_chance(some, seed),
        "mutual information": lambda some: other.by_mutual_information(sequences, said_S, some),
        "gradient saliency": lambda some: other.by_saliency(log_p, some, labels_S=answered(some)),
        "integrated gradients": lambda some: other.by_integrated_gradients(log_p, some, labels_S=answered(some)),
        "attention": lambda some: other.by_attention(pool, some),
        "LRP": lambda some: other.by_lrp(plain, some, labels_S=answered(some)),
        "SHAP": lambda some: other.by_shap(log_p, some, samples, labels_S=answered(some), seed=seed),
        "LightGBM + TreeSHAP": lambda some: other.by_tree_shap(
            sequences, labels, some, layout, labels_S=answered(some), seed=seed
        ),
    }


def _judged(
    judge: MaskedModel, test: Sequences, labels: NDArray[np.int64], rankings: dict[str, Ranking]
) -> list[Found]:
    """Every ranking at every retention, with each single prediction: differences are told on the same sequences."""
    retentions: dict[Literal["all", "present"], tuple[float, ...]] = {"all": OF_ALL, "present": OF_PRESENT}
    if (test.x_ND > 0).all():  # a flow has every slot: both shares are the same
        del retentions["all"]
    return [
        {**row.to_dict(), "predicted": row.predicted_S.tolist(), "labels": labels.tolist()}
        for of, shares in retentions.items()
        for row in faithfulness(judge, test, labels, rankings, shares, of=of, proof=True)
    ]


def _growth(judge: MaskedModel, test: Sequences, rankings: dict[str, Ranking]) -> Found:
    """The smallest rationale that passes, by every ranking: how many slots of a sequence it takes."""
    found: Found = {}
    for name, scores_ND in rankings.items():
        keep_ND = until_sufficient(judge, scores_ND, test, prune=False)  # what the order alone brings
        checked = verify(judge, test, keep_ND)
        size_S = np.bincount(test.sequence_N, keep_ND.sum(axis=1), minlength=len(test))
        passed_S = np.array([one.passed for one in checked])
        passed = [one for one in checked if one.passed]
        found[name] = {
            "passed": float(passed_S.mean()),
            "default": float(np.mean([one.verdict == "default" for one in checked])),
            "slots": float(np.median(size_S[passed_S])) if passed else None,
            "mean_slots": float(size_S[passed_S].mean()) if passed else None,
            "comprehensiveness": float(np.mean([one.comprehensiveness for one in passed])) if passed else None,
            "flips": float(np.mean([one.label_without != one.label for one in passed])) if passed else None,
        }
    return found


def _shuffled(judge: MaskedModel, test: Sequences, labels: NDArray[np.int64], scores_ND: Ranking) -> Found:
    """Accuracy under our masks, and under the same masks on the records of others: a mask must not say the label."""
    keep_ND: Keep = top_k(scores_ND, test, 0.05, of="present")
    return {
        "accuracy": float((judge.decide(judge(test, keep_ND)) == labels).mean()),
        "shuffled": float((smuggled(judge, test, keep_ND) == labels).mean()),
        "commonest": float(np.bincount(labels).max() / len(labels)),
    }


def _sampled(
    judge: MaskedModel,
    test: Sequences,
    labels: NDArray[np.int64],
    rankings: dict[str, Ranking],
    seed: int,
    most: int,
) -> list[Found]:
    """The ways that ask the language model for every subset, beside the others on the same few sequences."""
    from tefm.bench.attribution import by_greedy, by_kernel_shap

    some = np.sort(np.random.default_rng(seed).permutation(len(test))[:most])
    few, rows = test.select(some), test.places(some)
    ranked = {name: scores_ND[rows] for name, scores_ND in rankings.items()}
    ranked[ASKING[0]] = by_kernel_shap(judge, few, 512, seed=seed)
    ranked[ASKING[1]] = by_greedy(judge, few, 6, over="record")
    found = faithfulness(judge, few, labels[some], ranked, (0.20, 0.10, 0.05), of="present")
    return [row.to_dict() for row in found]


class Cost(Measurement):
    """Milliseconds per sequence to rank the slots, every way in one run; learning is not counted."""

    KIND: ClassVar[str] = "cost"

    reading: Prediction
    settings: dict[str, Any] = Setting(default_factory=dict)
    sequences: int = 50
    #: those that the ways which ask the language model are timed on
    asked: int = 3
    #: training sequences that what has to be learned is learned from
    learned: int = 400
    seconds: float = 1.0

    def needs(self) -> tuple[Measurement, ...]:
        return (self.reading,)

    def measure(self, bench: Bench) -> Found:
        from tefm.bench.attribution import by_greedy, by_kernel_shap

        judge, coder, (sequences, labels), (test, _) = _opened(self.reading, bench)
        split = self.reading.place[1]
        training = sequences.select(np.arange(len(sequences))[: self.learned]), labels[: self.learned]
        test = test.select(np.arange(len(test))[: self.sequences])
        config = RationaleConfig.preset("default", **{"seed": split, **self.settings})
        explainer = Explainer.fit(coder, training[0], judge, config)
        labels_S = judge.decide(judge(test))
        ways: dict[str, Rank] = {OURS: explainer.rank}
        ways |= other_ways(explainer, judge, training, labels_S, split, samples=512)
        ways[ASKING[0]] = lambda some: by_kernel_shap(judge, some, 512)
        ways[ASKING[1]] = lambda some: by_greedy(judge, some, 6, over="record")
        return {
            way: self._milliseconds(rank, test, self.asked if way in ASKING else len(test))
            for way, rank in ways.items()
        }

    def _milliseconds(self, rank: Rank, test: Sequences, count: int) -> float:
        some = test.select(np.arange(count))
        rank(some.select(np.arange(1)))
        started, rounds = time.perf_counter(), 0
        while rounds == 0 or time.perf_counter() - started < self.seconds:
            rank(some)
            rounds += 1
        return 1_000 * (time.perf_counter() - started) / rounds / count
