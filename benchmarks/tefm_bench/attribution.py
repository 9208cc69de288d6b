"""Other attribution methods, with which the extractor is compared.

Every `by_…` returns a score for each slot of each record; higher scores are selected first. Scores are signed: a slot
that argues against the predicted class ranks low. Chance, mutual information and attention have no sign. The scores of
absent slots mean nothing. Every ranking is evaluated with the same selection, codes and language model.

captum, shap and LightGBM do the work; install them with `pip install 'tefm[attribution]'`.

Shapes: S sequences, N records of all of them, D slots, Q classes, M input columns, P pairs of a record and a slot.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.feature_selection import mutual_info_classif
from torch import Tensor

from tefm.base.errors import InputError, extra
from tefm.rationale.extractor import MaskExplainer
from tefm.rationale.masked_model import Keep, MaskedModel, Over
from tefm.rationale.surrogate import READS, rows_of
from tefm.tables.layout import Layout
from tefm.tables.sequences import Sequences
from tefm.tabular.learners import LIGHTGBM
from tefm_bench.attribution_models import AttentionPool, PlainNetwork

Scores = NDArray[np.float64]
Labels = NDArray[np.integer[Any]]
#: The model to explain: slots, how much of each is kept (0 to 1, with gradient), starts of the sequences → log p_SQ.
Explainable = Callable[[Tensor, Tensor, NDArray[np.integer[Any]]], Tensor]

#: Records per batch: 4,096 × about 1,000 input columns are 16 MB.
RECORDS = 4_096
#: Points of the path from no slots to all slots that integrated gradients sum over.
STEPS = 32
#: Probabilities are clipped this far from 0 and 1, which have no log-odds.
LEAST = 1e-6


def surrogate_of(explainer: MaskExplainer) -> Explainable:
    """The surrogate of an extractor as the model to explain."""

    def log_p(x_ND: Tensor, keep_ND: Tensor, starts: NDArray[np.integer[Any]]) -> Tensor:
        read_Nd = READS[explainer.config.recipe](explainer.network, x_ND, keep_ND)
        log_p_SQ: Tensor = explainer.surrogate(read_Nd, rows_of(starts)).log_softmax(dim=1)
        return log_p_SQ

    return log_p


# ---- without a model ------------------------------------------------------------------------------------------------


def random_scores(sequences: Sequences, seed: int = 0) -> Scores:
    """A random ranking: the baseline that any other has to beat.

    >>> random_scores(Sequences(np.ones((3, 4), dtype=np.uint8), np.array([0, 1, 3]))).shape
    (3, 4)
    """
    return np.random.default_rng(seed).random(sequences.x_ND.shape)


def by_mutual_information(training: Sequences, labels_S: Labels, sequences: Sequences) -> Scores:
    """The mutual information of each slot of the last record with the label: the same order for all sequences."""
    # slots are small whole numbers, so they are counted, not smoothed
    information_D = mutual_info_classif(training.last, labels_S, discrete_features=True)
    return np.where(sequences.x_ND > 0, information_D, 0.0)


# ---- by gradients ---------------------------------------------------------------------------------------------------


def by_saliency(explainable: Explainable, sequences: Sequences, *, labels_S: Labels | None = None) -> Scores:
    """The gradient of the log-odds of the predicted class for each slot, with all slots kept."""
    method = _library("captum.attr").Saliency
    return _by_gradient(explainable, sequences, labels_S, lambda f, keep_ND: method(f).attribute(keep_ND, abs=False))


def by_integrated_gradients(
    explainable: Explainable, sequences: Sequences, *, labels_S: Labels | None = None, steps: int = STEPS
) -> Scores:
    """The average gradient on the path from no slots to all slots."""
    method = _library("captum.attr").IntegratedGradients
    return _by_gradient(
        explainable, sequences, labels_S, lambda f, keep_ND: method(f).attribute(keep_ND, n_steps=steps), steps
    )


def _by_gradient(
    explainable: Explainable,
    sequences: Sequences,
    labels_S: Labels | None,
    attribute: Callable[[Callable[[Tensor], Tensor], Tensor], Tensor],
    copies: int = 1,
) -> Scores:
    """A captum method at the mask that keeps everything; it evaluates `copies` copies of the records at once."""
    labels_S = _predicted(explainable, sequences) if labels_S is None else labels_S
    scores_ND = np.zeros(sequences.x_ND.shape)
    for chosen in _batches(sequences, max(1, RECORDS // copies)):
        part = sequences.select(chosen)
        odds = _odds_of(explainable, part, labels_S[chosen])
        with torch.enable_grad():
            scores = attribute(odds, torch.ones(part.x_ND.shape, requires_grad=True))
        scores_ND[sequences.places(chosen)] = scores.detach().cpu().numpy()
    return scores_ND


def _odds_of(explainable: Explainable, sequences: Sequences, labels_S: Labels) -> Callable[[Tensor], Tensor]:
    """Mask in, log-odds of the predicted classes out; the mask may contain several copies of the records in a row."""
    x_ND, records = torch.from_numpy(sequences.x_ND), len(sequences.x_ND)

    def odds(keep_ND: Tensor) -> Tensor:
        copies = len(keep_ND) // records
        starts = (np.arange(copies)[:, None] * records + sequences.starts[:-1]).ravel()
        starts = np.append(starts, copies * records).astype(np.int64)
        return _log_odds(explainable(x_ND.repeat(copies, 1), keep_ND, starts), np.tile(labels_S, copies))

    return odds


# ---- by a model that is easy to explain ------------------------------------------------------------------------


def by_lrp(plain: PlainNetwork, sequences: Sequences, *, labels_S: Labels | None = None) -> Scores:
    """Layer-wise relevance propagation (the epsilon rule) through a plain network; columns are summed per slot.

    The network (`fit_plain`) reads the last record only; the other records are explained as if each were the last.
    """
    lrp = _library("captum.attr").LRP(plain.layers)
    if labels_S is None:
        labels_S = plain.logits(sequences.last).argmax(dim=1).numpy()
    labels_N = torch.from_numpy(labels_S.astype(np.int64))[sequences.sequence_N]
    scores_ND = np.zeros(sequences.x_ND.shape)
    for start in range(0, len(scores_ND), RECORDS):
        rows = slice(start, start + RECORDS)
        columns_NM = plain.columns(torch.from_numpy(sequences.x_ND[rows])).requires_grad_()
        relevance_NM = lrp.attribute(columns_NM, target=labels_N[rows]).detach()
        scores_ND[rows] = plain.per_slot(relevance_NM).numpy()
    return scores_ND


def by_attention(pool: AttentionPool, sequences: Sequences) -> Scores:
    """The attention that a model which pools the present slots of a sequence (`fit_attention`) gives to each."""
    scores_ND = np.zeros(sequences.x_ND.shape)
    with torch.no_grad():
        present = pool.present(sequences)
        scores_ND[present.row_P, present.slot_P] = pool.attention(present).numpy()
    return scores_ND


def by_tree_shap(
    training: Sequences,
    labels: Labels,
    sequences: Sequences,
    layout: Layout,
    *,
    labels_S: Labels | None = None,
    seed: int = 0,
) -> Scores:
    """The usual method: LightGBM on the slots of the last record, and the SHAP values of its trees.

    `labels` are those of the training sequences. The other records are explained as if each were the last.
    """
    if len(np.unique(labels)) < 2:
        raise InputError(
            "the training sequences have one label only, but trees need at least two",
            value=labels.tolist()[0] if len(labels) else None,
            remedy="use training sequences of at least two classes",
        )
    model = _library("lightgbm").LGBMClassifier(**LIGHTGBM, random_state=seed)
    unordered = [number for number, slot in enumerate(layout.slots) if slot.kind == "category"]
    model.fit(training.last, labels, categorical_feature=unordered)
    if labels_S is None:
        labels_S = model.predict(sequences.last)
    # one column per slot and one for the base value, per class; with two classes, LightGBM returns the second only
    values_NQD = model.predict(sequences.x_ND, pred_contrib=True).reshape(len(sequences.x_ND), -1, layout.width + 1)
    if values_NQD.shape[1] == 1:
        values_NQD = np.concatenate([-values_NQD, values_NQD], axis=1)
    values_NQD = values_NQD[:, :, :-1]
    number_of = {label: number for number, label in enumerate(model.classes_.tolist())}
    class_N = np.array([number_of.get(label, -1) for label in labels_S.tolist()])[sequences.sequence_N]
    # the trees have no values for a class that does not occur in training
    return np.where(class_N[:, None] >= 0, values_NQD[np.arange(len(class_N)), class_N], 0.0)


# ---- by predicting subsets ------------------------------------------------------------------------------------------


def by_shap(
    explainable: Explainable,
    sequences: Sequences,
    samples: int = 1_000,
    *,
    labels_S: Labels | None = None,
    seed: int = 0,
) -> Scores:
    """SHAP values of the log-odds over the present slots of each sequence; dropped slots count as absent.

    `samples` is the number of subsets per sequence; use several times the number of its present slots.
    """
    labels_S = _predicted(explainable, sequences) if labels_S is None else labels_S
    return _by_kernel(lambda copies, keep_ND: _log_p(explainable, copies, keep_ND), sequences, labels_S, samples, seed)


def by_kernel_shap(
    masked_model: MaskedModel,
    sequences: Sequences,
    samples: int = 1_000,
    *,
    labels_S: Labels | None = None,
    seed: int = 0,
) -> Scores:
    """SHAP values of the language model itself, which predicts `samples` subsets per sequence."""
    labels_S = masked_model.decide(masked_model(sequences)) if labels_S is None else labels_S

    def log_p(copies: Sequences, keep_ND: Keep) -> Tensor:
        return torch.from_numpy(np.log(np.clip(masked_model(copies, keep_ND), LEAST, 1 - LEAST)))

    return _by_kernel(log_p, sequences, labels_S, samples, seed)


def _by_kernel(
    log_p: Callable[[Sequences, Keep], Tensor], sequences: Sequences, labels_S: Labels, samples: int, seed: int
) -> Scores:
    """KernelSHAP over the present slots, one sequence after another."""
    explainer = _library("shap").KernelExplainer
    scores_ND = np.zeros(sequences.x_ND.shape)
    for number in range(len(sequences)):
        sequence = sequences.select(np.array([number]))
        row_P, slot_P = np.nonzero(sequence.x_ND)
        if not len(row_P):
            continue
        odds = _odds_of_subsets(log_p, sequence, labels_S[number : number + 1])
        with _numpy_seed(seed + number):
            # l1_reg=0: rank all slots instead of selecting a few features first
            values_1P = explainer(odds, np.zeros((1, len(row_P)))).shap_values(
                np.ones((1, len(row_P))), nsamples=samples, l1_reg=0, silent=True
            )
        scores_ND[sequences.starts[number] + row_P, slot_P] = values_1P[0]
    return scores_ND


def _odds_of_subsets(
    log_p: Callable[[Sequences, Keep], Tensor], sequence: Sequences, label_1: Labels
) -> Callable[[NDArray[Any]], Scores]:
    """Subsets of the present slots of one sequence in (1 for each slot that is kept), log-odds of the label out."""
    row_P, slot_P = np.nonzero(sequence.x_ND)

    def odds(subsets_SP: NDArray[Any]) -> Scores:
        subsets = len(subsets_SP)
        keep_SLD = np.zeros((subsets, *sequence.x_ND.shape), dtype=bool)
        keep_SLD[:, row_P, slot_P] = subsets_SP > 0.5
        copies = sequence.select(np.zeros(subsets, dtype=np.int64))
        odds_S: Scores = _log_odds(log_p(copies, np.concatenate(keep_SLD)), label_1.repeat(subsets)).double().numpy()
        return odds_S

    return odds


def kernel_values(
    probabilities: Callable[[NDArray[Any]], Scores], features: int, samples: int, most: int, seed: int
) -> Scores:
    """SHAP values of features that are there (1) or replaced (0); the `most` that matter most have a value at all."""
    explainer = _library("shap").KernelExplainer
    with _numpy_seed(seed), warnings.catch_warnings():
        # few samples leave the least squares without a single solution, of which it says so each time
        warnings.simplefilter("ignore")
        values_1F = explainer(probabilities, np.zeros((1, features))).shap_values(
            np.ones((1, features)), nsamples=samples, l1_reg=f"num_features({min(most, features)})", silent=True
        )
    values_F: Scores = np.asarray(values_1F[0], dtype=np.float64)
    return values_F


def by_greedy(
    masked_model: MaskedModel,
    sequences: Sequences,
    most: int,
    *,
    over: Over = "sequence",
    labels_S: Labels | None = None,
) -> Scores:
    """The upper reference: forward selection by the language model, `most` slots per sequence (or per record).

    Each step tries every remaining present slot together with those chosen so far, and chooses the one that makes the
    predicted label most probable; one call of the model serves all sequences. Slots that are never chosen rank below,
    by their effect alone. It predicts `most` × present slots subsets per sequence.
    """
    labels_S = masked_model.decide(masked_model(sequences)) if labels_S is None else labels_S
    chosen_ND = np.zeros(sequences.x_ND.shape, dtype=bool)
    nothing_S = masked_model(sequences, chosen_ND)[np.arange(len(sequences)), labels_S]
    scores_ND = np.zeros(sequences.x_ND.shape)
    for step in range(most):
        row_P, slot_P = np.nonzero((sequences.x_ND > 0) & ~chosen_ND)
        if not len(row_P):
            break
        sequence_P = sequences.sequence_N[row_P]
        tried = sequences.select(sequence_P)
        keep_ND = chosen_ND[sequences.places(sequence_P)]
        keep_ND[tried.starts[:-1] + row_P - sequences.starts[sequence_P], slot_P] = True
        p_P = masked_model(tried, keep_ND)[np.arange(len(sequence_P)), labels_S[sequence_P]]
        if step == 0:
            scores_ND[row_P, slot_P] = p_P - nothing_S[sequence_P]  # at most 1
        group_P = sequence_P if over == "sequence" else row_P
        best_first = np.lexsort((-p_P, group_P))
        _, first = np.unique(group_P[best_first], return_index=True)
        best = best_first[first]
        chosen_ND[row_P[best], slot_P[best]] = True
        scores_ND[row_P[best], slot_P[best]] = 1 + most - step  # at least 2
    return scores_ND


# ---- shared helpers -------------------------------------------------------------------------------------------------


def _batches(sequences: Sequences, records: int) -> Iterator[NDArray[np.int64]]:
    """The numbers of the sequences, in batches of about `records` records."""
    batch_S = sequences.starts[:-1] // records
    for batch in np.unique(batch_S):
        yield np.flatnonzero(batch_S == batch)


@torch.no_grad()
def _log_p(explainable: Explainable, sequences: Sequences, keep_ND: Keep) -> Tensor:
    """The log-probabilities of the classes."""
    parts = []
    for chosen in _batches(sequences, RECORDS):
        batch, keep = sequences.select(chosen), keep_ND[sequences.places(chosen)]
        parts.append(explainable(torch.from_numpy(batch.x_ND), torch.from_numpy(keep).float(), batch.starts).cpu())
    return torch.cat(parts)


def _predicted(explainable: Explainable, sequences: Sequences) -> Labels:
    """The class that the model to explain predicts."""
    return _log_p(explainable, sequences, np.ones(sequences.x_ND.shape, dtype=bool)).argmax(dim=1).numpy()


def _log_odds(log_SQ: Tensor, labels_S: Labels) -> Tensor:
    """log p − log (1 − p) of one class per sequence.

    >>> _log_odds(torch.tensor([[0.25, 0.5, 0.25]]).log(), np.array([0])).exp()
    tensor([0.3333])
    """
    label_S1 = torch.from_numpy(labels_S.astype(np.int64))[:, None].to(log_SQ.device)
    others_SQ = log_SQ.scatter(1, label_S1, -torch.inf)
    return log_SQ.gather(1, label_S1)[:, 0] - others_SQ.logsumexp(dim=1)


def _library(name: str) -> Any:
    with extra("attribution", f"this attribution method needs {name.partition('.')[0]}"):
        return import_module(name)


@contextmanager
def _numpy_seed(seed: int) -> Iterator[None]:
    """Seed numpy's global generator, which shap uses, and restore its state afterwards."""
    state = np.random.get_state()
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        np.random.set_state(state)
