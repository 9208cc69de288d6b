"""How faithful rationales are: each method ranks the slots, and the frozen language model answers from the top ones.

Shapes: S sequences, N records of all of them, D slots, Q classes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Setting

from tefm.base.settings import Preset
from tefm.codes.coder import SlotCoder
from tefm.rationale.config import RationaleConfig
from tefm.rationale.extractor import MaskExplainer
from tefm.rationale.masked_model import Keep, MaskedModel, top_k
from tefm.rationale.verify import until_sufficient, verify
from tefm.tables.sequences import Sequences
from tefm_bench.data import DATA, FLOWS
from tefm_bench.faithfulness import faithfulness, predict_shuffled
from tefm_bench.measurement import Bench, Figures, Measurement
from tefm_bench.predictions import Prediction

#: A score for each slot of each record.
Ranking = NDArray[Any]
Rank = Callable[[Sequences], Ranking]
#: Sequences, and their class numbers.
Labelled = tuple[Sequences, NDArray[np.int64]]

#: Shares of the slots that are kept: of all slots (as the paper counts), and of those present in a record.
OF_ALL, OF_PRESENT = (0.25, 0.20, 0.15, 0.10, 0.05), (0.30, 0.20, 0.10, 0.05)
OURS = "ours"
#: Methods that query the language model for every subset; they are compared on a sample of the test sequences.
KERNEL_SHAP, GREEDY = QUERYING = ("KernelSHAP on the language model", "greedy search with the language model")
#: Subsets per sequence that SHAP samples; a flow sequence has ten records, so each subset takes longer.
SAMPLES, FLOW_SAMPLES = 512, 128


class PredictionFidelity(MaskExplainer):
    """The paper's extractor without the first term of its loss, λ1 = 0."""

    CODE_WEIGHT: ClassVar[float] = 0.0


def learned_masks(
    coder: SlotCoder, sequences: Sequences, model: MaskedModel, preset: Preset, settings: Mapping[str, Any]
) -> MaskExplainer:
    """An extractor, learned from the model's predictions; `code_weight: 0` among its settings leaves λ1 out."""
    others = {name: value for name, value in settings.items() if name != "code_weight"}
    kind = MaskExplainer if others == settings else PredictionFidelity
    return kind.fit(coder, sequences, model, RationaleConfig.preset(preset, **others))


class Rationales(Measurement):
    """An extractor, learned on the training sequences: its ranking, and others', scored on the test sequences."""

    KIND: ClassVar[str] = "rationales"

    prediction: Prediction
    preset: Preset = "default"
    #: changes to the settings of the extractor
    settings: dict[str, Any] = Setting(default_factory=dict)
    #: also rank with every other attribution method
    compare: bool = False
    #: test sequences, at most
    most: int | None = None
    #: test sequences on which the methods that query the language model are compared
    queried: int = 60

    def needs(self) -> tuple[Measurement, ...]:
        return (self.prediction,)

    def measure(self, bench: Bench) -> Figures:
        model, coder, training, (test, labels_S) = _open(self.prediction, bench)
        data, split = self.prediction.source
        test, labels_S = test.select(np.arange(len(test))[: self.most]), labels_S[: self.most]
        started = time.perf_counter()
        explainer = learned_masks(coder, training[0], model, self.preset, {"seed": split, **self.settings})
        assert explainer.agreement_ is not None
        figures: Figures = {"seconds": time.perf_counter() - started, "agreement": asdict(explainer.agreement_)}
        p_SQ = model(test)
        rankings = {OURS: explainer.rank(test, p_SQ)}
        if self.compare:
            flows = data in FLOWS
            samples = FLOW_SAMPLES if flows else SAMPLES
            methods = attribution_methods(explainer, model, training, model.decide(p_SQ), split, samples=samples)
            rankings |= {name: rank(test) for name, rank in methods.items()}
            figures["growth"] = _growth(model, test, {OURS: rankings[OURS]} if flows else rankings, p_SQ.shape[1])
            figures["shuffled"] = _shuffled(model, test, labels_S, rankings[OURS])
            figures["sample"] = [] if flows else _sampled(model, test, labels_S, rankings, split, self.queried)
        figures["rows"] = _scored(model, test, labels_S, rankings)
        return figures


def _open(prediction: Prediction, bench: Bench) -> tuple[MaskedModel, SlotCoder, Labelled, Labelled]:
    """The model, its tokenizer, and the training and test sequences."""
    assert prediction.codes is not None, "text has no slots to keep"
    data, task = prediction.codes.split_data(bench), DATA[prediction.source[0]]
    fitted = prediction.fitted(bench)
    assert fitted.coder is not None, "a model of codes has a coder"
    return fitted.masked_model(), fitted.coder, data.sequences(task, "train"), data.sequences(task, "test")


def attribution_methods(
    explainer: MaskExplainer,
    model: MaskedModel,
    training: Labelled,
    predicted_S: NDArray[np.int64],
    seed: int,
    *,
    samples: int,
) -> dict[str, Rank]:
    """The other methods, each to rank the first of the sequences whose predicted classes are `predicted_S`.

    Those that learn, learn from the training sequences and the model's predictions for them.
    """
    from tefm_bench import attribution
    from tefm_bench.attribution_models import fit_attention, fit_plain

    sequences, labels_S = training
    p_SQ = model(sequences)
    decided_S = model.decide(p_SQ)
    log_p, layout = attribution.surrogate_of(explainer), explainer.network.layout
    plain, pool = fit_plain(sequences, p_SQ, layout, seed=seed), fit_attention(sequences, p_SQ, layout, seed=seed)

    def predicted(test: Sequences) -> NDArray[np.int64]:
        return predicted_S[: len(test)]

    return {
        "random": lambda test: attribution.random_scores(test, seed),
        "mutual information": lambda test: attribution.by_mutual_information(sequences, decided_S, test),
        "gradient saliency": lambda test: attribution.by_saliency(log_p, test, labels_S=predicted(test)),
        "integrated gradients": lambda test: attribution.by_integrated_gradients(log_p, test, labels_S=predicted(test)),
        "attention": lambda test: attribution.by_attention(pool, test),
        "LRP": lambda test: attribution.by_lrp(plain, test, labels_S=predicted(test)),
        "SHAP": lambda test: attribution.by_shap(log_p, test, samples, labels_S=predicted(test), seed=seed),
        "LightGBM + TreeSHAP": lambda test: attribution.by_tree_shap(
            sequences, labels_S, test, layout, labels_S=predicted(test), seed=seed
        ),
    }


def querying_methods(model: MaskedModel, seed: int = 0) -> dict[str, Rank]:
    """The methods that query the language model for every subset."""
    from tefm_bench.attribution import by_greedy, by_kernel_shap

    return {
        KERNEL_SHAP: lambda test: by_kernel_shap(model, test, SAMPLES, seed=seed),
        GREEDY: lambda test: by_greedy(model, test, 6, over="record"),
    }


def _scored(
    model: MaskedModel, test: Sequences, labels_S: NDArray[np.int64], rankings: dict[str, Ranking]
) -> list[Figures]:
    """Every ranking at every retention, with each single prediction: methods are compared on the same sequences."""
    retentions: dict[Literal["all", "present"], tuple[float, ...]] = {"all": OF_ALL, "present": OF_PRESENT}
    if (test.x_ND > 0).all():  # a flow has every slot, so both shares are the same
        del retentions["all"]
    return [
        {**row.to_dict(), "predicted": row.predicted_S.tolist(), "labels": labels_S.tolist()}
        for of, shares in retentions.items()
        for row in faithfulness(model, test, labels_S, rankings, shares, of=of, proof=True)
    ]


def _growth(model: MaskedModel, test: Sequences, rankings: dict[str, Ranking], classes: int) -> Figures:
    """The smallest rationale that passes the check, for every ranking: how many slots of a sequence it needs."""
    growth: Figures = {}
    for name, scores_ND in rankings.items():
        keep_ND = until_sufficient(model, scores_ND, test, prune=False)  # pruning would hide the ranking
        checks = verify(model, test, keep_ND, [str(number) for number in range(classes)])
        size_S = np.bincount(test.sequence_N, keep_ND.sum(axis=1), minlength=len(test))
        passed_S = np.array([check.passed for check in checks])
        passed = [check for check in checks if check.passed]
        growth[name] = {
            "passed": float(passed_S.mean()),
            "default": float(np.mean([check.verdict == "default" for check in checks])),
            "slots": float(np.median(size_S[passed_S])) if passed else None,
            "mean_slots": float(size_S[passed_S].mean()) if passed else None,
            "comprehensiveness": float(np.mean([check.comprehensiveness for check in passed])) if passed else None,
            "flips": float(np.mean([check.without.says != check.full.says for check in passed])) if passed else None,
        }
    return growth


def _shuffled(model: MaskedModel, test: Sequences, labels_S: NDArray[np.int64], scores_ND: Ranking) -> Figures:
    """Accuracy with our masks, and with the same masks on other records: a mask must not give the label away."""
    keep_ND: Keep = top_k(scores_ND, test, 0.05, of="present")
    return {
        "accuracy": float((model.decide(model(test, keep_ND)) == labels_S).mean()),
        "shuffled": float((predict_shuffled(model, test, keep_ND) == labels_S).mean()),
        "commonest": float(np.bincount(labels_S).max() / len(labels_S)),
    }


def _sampled(
    model: MaskedModel,
    test: Sequences,
    labels_S: NDArray[np.int64],
    rankings: dict[str, Ranking],
    seed: int,
    most: int,
) -> list[Figures]:
    """The methods that query the language model, and the others, on the same sample of the test sequences."""
    chosen = np.sort(np.random.default_rng(seed).permutation(len(test))[:most])
    sample, places = test.select(chosen), test.places(chosen)
    sampled = {name: scores_ND[places] for name, scores_ND in rankings.items()}
    sampled |= {name: rank(sample) for name, rank in querying_methods(model, seed).items()}
    rows = faithfulness(model, sample, labels_S[chosen], sampled, (0.20, 0.10, 0.05), of="present")
    return [row.to_dict() for row in rows]


class Cost(Measurement):
    """Milliseconds per sequence to rank the slots, for every method in one run; training is not counted."""

    KIND: ClassVar[str] = "cost"

    prediction: Prediction
    #: changes to the settings of the extractor
    settings: dict[str, Any] = Setting(default_factory=dict)
    #: test sequences, and those for the methods that query the language model
    sequences: int = 50
    queried: int = 3
    #: training sequences
    training: int = 400
    #: each method runs at least this long
    seconds: float = 1.0

    def needs(self) -> tuple[Measurement, ...]:
        return (self.prediction,)

    def measure(self, bench: Bench) -> Figures:
        model, coder, (sequences, labels_S), (test, _) = _open(self.prediction, bench)
        split = self.prediction.source[1]
        training = sequences.select(np.arange(len(sequences))[: self.training]), labels_S[: self.training]
        test = test.select(np.arange(len(test))[: self.sequences])
        explainer = learned_masks(coder, training[0], model, "default", {"seed": split, **self.settings})
        p_SQ = model(test)
        methods: dict[str, Rank] = {OURS: lambda some: explainer.rank(some, p_SQ[: len(some)])}
        methods |= attribution_methods(explainer, model, training, model.decide(p_SQ), split, samples=SAMPLES)
        figures = {name: self._milliseconds(rank, test) for name, rank in methods.items()}
        few = test.select(np.arange(self.queried))
        return figures | {name: self._milliseconds(rank, few) for name, rank in querying_methods(model).items()}

    def _milliseconds(self, rank: Rank, test: Sequences) -> float:
        rank(test.select(np.arange(1)))
        started, rounds = time.perf_counter(), 0
        while rounds == 0 or time.perf_counter() - started < self.seconds:
            rank(test)
            rounds += 1
        return 1_000 * (time.perf_counter() - started) / rounds / len(test)
