"""The other ways to say which slots a prediction rests on: what the extractor is compared with.

Every `by_…` returns a ranking of all slots of all records (higher is kept earlier), in favour of the predicted class:
a slot that argues against it ranks low. Chance, mutual information and attention know no direction. What absent slots
score means nothing. The same selection, coding and language model then judge every ranking alike.

captum, shap and LightGBM do what they already do; they come with `pip install 'tefm[attribution]'`.

Shapes: S sequences, N records of all of them, D slots, Q classes, M input columns, P pairs of a record and a slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.feature_selection import mutual_info_classif
from torch import Tensor

from tefm.base.errors import InputError, MissingExtraError
from tefm.bench.attribution_models import AttentionPool, PlainNetwork
from tefm.codes.ceiling import LIGHTGBM
from tefm.rationale.masked_model import Keep, MaskedModel
from tefm.rationale.select import Over
from tefm.records.layout import Layout
from tefm.records.sequences import Sequences

Scores = NDArray[np.float64]
Labels = NDArray[np.integer[Any]]
#: The model to explain: slots, how much of each is kept (0 to 1, with gradient), where sequences start → log p_SQ.
Explainable = Callable[[Tensor, Tensor, NDArray[np.integer[Any]]], Tensor]

#: Records that go through a model at once: 4,096 × some 1,000 input columns are 16 MB.
RECORDS = 4_096
#: Points between "nothing kept" and "all kept" that integrated gradients are summed over.
STEPS = 32
#: A probability of 0 or 1 has no log-odds; nearer than this, none is told from certain.
LEAST = 1e-6


# ---- without a model ------------------------------------------------------------------------------------------------


def by_mutual_information(training: Sequences, labels_S: Labels, sequences: Sequences) -> Scores:
    """What each slot of the last record says about the label, over all training sequences: one order for all."""
    # a slot is a small whole number whatever it stands for: counted, not smoothed
    said_D = mutual_info_classif(training.last, labels_S, discrete_features=True)
    return np.where(sequences.x_ND > 0, said_D, 0.0)


# ---- by gradients ---------------------------------------------------------------------------------------------------


def by_saliency(explainable: Explainable, sequences: Sequences, *, labels_S: Labels | None = None) -> Scores:
    """How fast the log-odds of the predicted class rise with each slot, where all are kept."""
    method = _library("captum.attr").Saliency
    return _by_gradient(explainable, sequences, labels_S, lambda f, keep_ND: method(f).attribute(keep_ND, abs=False))


def by_integrated_gradients(
    explainable: Explainable, sequences: Sequences, *, labels_S: Labels | None = None, steps: int = STEPS
) -> Scores:
    """The same, on average on the way from nothing kept to all kept."""
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
    """A method of captum around the mask that keeps everything; it looks at so many copies of the records at once."""
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
    """Mask in, log-odds of the predicted classes out; several copies of the records may come one after another."""
    x_ND, records = torch.from_numpy(sequences.x_ND), len(sequences.x_ND)

    def odds(keep_ND: Tensor) -> Tensor:
        copies = len(keep_ND) // records
        starts = (np.arange(copies)[:, None] * records + sequences.starts[:-1]).ravel()
        starts = np.append(starts, copies * records).astype(np.int64)
        return _log_odds(explainable(x_ND.repeat(copies, 1), keep_ND, starts), np.tile(labels_S, copies))

    return odds


# ---- by a model that is made to be explained ------------------------------------------------------------------------


def by_lrp(plain: PlainNetwork, sequences: Sequences, *, labels_S: Labels | None = None) -> Scores:
    """Layer-wise relevance propagation (the epsilon rule) through a plain network; columns are summed per slot.

    The network (`fit_plain`) reads one record, the last; the other records are explained as if each were the last.
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
    """How much a model that pools the present slots of a sequence (`fit_attention`) attends to each."""
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
    """What is done today: LightGBM on the slots of the last record, and the SHAP values of its trees.

    `labels` are those of the training sequences. The other records are explained as if each were the last.
    """
    if len(np.unique(labels)) < 2:
        raise InputError(
            "the training sequences have one label only, and trees need two to tell apart",
            value=labels.tolist()[0] if len(labels) else None,
            remedy="give training sequences of at least two classes",
        )
    model = _library("lightgbm").LGBMClassifier(**LIGHTGBM, random_state=seed)
    unordered = [number for number, slot in enumerate(layout.slots) if slot.kind == "category"]
    model.fit(training.last, labels, categorical_feature=unordered)
    if labels_S is None:
        labels_S = model.predict(sequences.last)
    # per class the slots and what is said without any; of two classes, only those of the second are given
    given = model.predict(sequences.x_ND, pred_contrib=True).reshape(len(sequences.x_ND), -1, layout.width + 1)
    values_NQD = given[:, :, :-1] if given.shape[1] > 1 else np.concatenate([-given, given], axis=1)[:, :, :-1]
    of_class = {label: number for number, label in enumerate(model.classes_.tolist())}
    class_N = np.array([of_class.get(label, -1) for label in labels_S.tolist()])[sequences.sequence_N]
    # of a class that never came in training the trees know nothing
    return np.where(class_N[:, None] >= 0, values_NQD[np.arange(len(class_N)), class_N], 0.0)


# ---- by asking about subsets ----------------------------------------------------------------------------------------


def by_shap(
    explainable: Explainable,
    sequences: Sequences,
    samples: int = 1_000,
    *,
    labels_S: Labels | None = None,
    seed: int = 0,
) -> Scores:
    """SHAP values of the log-odds over the present slots of each sequence; what is not kept is absent.

    `samples` subsets are asked about per sequence: several times as many as it has present slots.
    """
    labels_S = _predicted(explainable, sequences) if labels_S is None else labels_S
    return _by_kernel(lambda copies, keep_ND: _log_p(explainable, copies, keep_ND), sequences, labels_S, samples, seed)


def by_kernel_shap(
    judge: MaskedModel,
    sequences: Sequences,
    samples: int = 1_000,
    *,
    labels_S: Labels | None = None,
    seed: int = 0,
) -> Scores:
    """The same, asking the language model itself: `samples` questions per sequence."""
    labels_S = judge.decide(judge(sequences)) if labels_S is None else labels_S

    def log_p(copies: Sequences, keep_ND: Keep) -> Tensor:
        return torch.from_numpy(np.log(np.clip(judge(copies, keep_ND), LEAST, 1 - LEAST)))

    return _by_kernel(log_p, sequences, labels_S, samples, seed)


def _by_kernel(
    log_p: Callable[[Sequences, Keep], Tensor], sequences: Sequences, labels_S: Labels, samples: int, seed: int
) -> Scores:
    """KernelSHAP over the present slots, one sequence after another."""
    explainer = _library("shap").KernelExplainer
    scores_ND = np.zeros(sequences.x_ND.shape)
    for number in range(len(sequences)):
        one = sequences.select(np.array([number]))
        row_P, slot_P = np.nonzero(one.x_ND)
        if not len(row_P):
            continue
        odds = _odds_of_subsets(log_p, one, labels_S[number : number + 1])
        with _numpy_seed(seed + number):
            # no selection of a few features first (l1_reg): all slots are to be ranked
            values_1P = explainer(odds, np.zeros((1, len(row_P)))).shap_values(
                np.ones((1, len(row_P))), nsamples=samples, l1_reg=0, silent=True
            )
        scores_ND[sequences.starts[number] + row_P, slot_P] = values_1P[0]
    return scores_ND


def _odds_of_subsets(
    log_p: Callable[[Sequences, Keep], Tensor], one: Sequences, label_1: Labels
) -> Callable[[NDArray[Any]], Scores]:
    """Subsets of the present slots of one sequence in (a 1 for each slot that is kept), log-odds of the label out."""
    row_P, slot_P = np.nonzero(one.x_ND)

    def odds(subsets_SP: NDArray[Any]) -> Scores:
        subsets = len(subsets_SP)
        keep_SLD = np.zeros((subsets, *one.x_ND.shape), dtype=bool)
        keep_SLD[:, row_P, slot_P] = subsets_SP > 0.5
        copies = one.select(np.zeros(subsets, dtype=np.int64))
        odds_S: Scores = _log_odds(log_p(copies, np.concatenate(keep_SLD)), label_1.repeat(subsets)).double().numpy()
        return odds_S

    return odds


def by_greedy(
    judge: MaskedModel,
    sequences: Sequences,
    most: int,
    *,
    over: Over = "sequence",
    labels_S: Labels | None = None,
) -> Scores:
    """The upper reference: forward selection by the language model, `most` slots per sequence (or per record).

    Each step tries every present slot that is left together with those chosen, and takes the one that makes the
    predicted label likeliest; all sequences take the step in one question. Slots never chosen rank below, by what
    each does alone. It asks about `most` × present slots subsets per sequence.
    """
    labels_S = judge.decide(judge(sequences)) if labels_S is None else labels_S
    chosen_ND = np.zeros(sequences.x_ND.shape, dtype=bool)
    nothing_S = judge(sequences, chosen_ND)[np.arange(len(sequences)), labels_S]
    scores_ND = np.zeros(sequences.x_ND.shape)
    for step in range(most):
        row_P, slot_P = np.nonzero((sequences.x_ND > 0) & ~chosen_ND)
        if not len(row_P):
            break
        of_P = sequences.sequence_N[row_P]
        tried = sequences.select(of_P)
        keep_ND = chosen_ND[sequences.places(of_P)]
        keep_ND[tried.starts[:-1] + row_P - sequences.starts[of_P], slot_P] = True
        p_P = judge(tried, keep_ND)[np.arange(len(of_P)), labels_S[of_P]]
        if step == 0:
            scores_ND[row_P, slot_P] = p_P - nothing_S[of_P]  # at most 1
        group_P = of_P if over == "sequence" else row_P
        best_first = np.lexsort((-p_P, group_P))
        _, first = np.unique(group_P[best_first], return_index=True)
        taken = best_first[first]
        chosen_ND[row_P[taken], slot_P[taken]] = True
        scores_ND[row_P[taken], slot_P[taken]] = 1 + most - step  # at least 2
    return scores_ND


# ---- what they share ------------------------------------------------------------------------------------------------


def _batches(sequences: Sequences, records: int) -> Iterator[NDArray[np.int64]]:
    """The numbers of the sequences, in batches of about so many records."""
    batch_S = sequences.starts[:-1] // records
    for batch in np.unique(batch_S):
        yield np.flatnonzero(batch_S == batch)


@torch.no_grad()
def _log_p(explainable: Explainable, sequences: Sequences, keep_ND: Keep) -> Tensor:
    """The log-probabilities of the classes."""
    found = []
    for chosen in _batches(sequences, RECORDS):
        part, keep = sequences.select(chosen), keep_ND[sequences.places(chosen)]
        found.append(explainable(torch.from_numpy(part.x_ND), torch.from_numpy(keep).float(), part.starts).cpu())
    return torch.cat(found)


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
    try:
        return import_module(name)
    except ImportError as error:
        library = name.partition(".")[0]
        raise MissingExtraError(f"this ranking needs {library}", remedy="pip install 'tefm[attribution]'") from error


@contextmanager
def _numpy_seed(seed: int) -> Iterator[None]:
    """shap draws from numpy's global generator: it is seeded, and left as it was found."""
    state = np.random.get_state()
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        np.random.set_state(state)
