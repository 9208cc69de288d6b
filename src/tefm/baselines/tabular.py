"""Tabular models on raw slots: what a sequence's records say without codes and without a language model.

A sequence becomes one row of features, LightGBM or a logistic regression learns from the training part, the
validation part decides when to stop and which features to use, and the test part is scored once.

Shapes: N records or sequences, D slots, F features, Q classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from tefm.codes.ceiling import LIGHTGBM
from tefm.codes.coder import class_numbers
from tefm.errors import InputError, MissingExtraError, SettingsError
from tefm.language.calibrate import Calibration
from tefm.language.metrics import Scores, score
from tefm.records.layout import Layout, SlotKind
from tefm.records.sequences import PARTS, Sequences

Kind = Literal["last", "history", "flat"]
Numbers = NDArray[np.int64]

#: Trees are added until the validation loss has not fallen for this many, up to a number that is never reached.
PATIENCE, TREES = 50, 2_000
#: Strengths of the logistic regression that validation chooses from.
STRENGTHS = (0.01, 0.1, 1.0)
#: A probability below this costs as much as this one, so that one confident error does not decide a choice.
LEAST = 1e-6


class Tabular(Protocol):
    """A fitted model."""

    def predict_proba(self, x_NF: NDArray[Any]) -> NDArray[np.float64]: ...


# ---- features -------------------------------------------------------------------------------------------------------


def sequence_features(slots_ND: NDArray[Any], sequences: Sequences, layout: Layout, *, kind: Kind) -> NDArray[Any]:
    """One row per sequence.

    `last`: the slots of its last record. `history`: these, the mean of each slot over its records (as a share of the
    slot's size), and the number of records. `flat`: the slots of all records side by side, the last record at the end
    and 0 (absent) in front of shorter sequences; meant for windows.

    >>> from tefm.records.layout import Slot
    >>> x = np.array([[1, 0], [3, 1], [4, 1]], dtype=np.uint8)
    >>> sequences = Sequences(np.arange(3), np.array([0, 2, 3]), np.array(["a", "b"]), None, np.array([1, 2]))
    >>> layout = Layout((Slot("age", "number", 4), Slot("dx", "flag", 1, "428")))
    >>> sequence_features(x, sequences, layout, kind="history").tolist()
    [[3.0, 1.0, 0.5, 0.5, 2.0], [4.0, 1.0, 1.0, 1.0, 1.0]]
    >>> sequence_features(x, sequences, layout, kind="flat").tolist()
    [[1, 0, 3, 1], [0, 0, 4, 1]]
    """
    if kind not in get_args(Kind):
        raise SettingsError("there are no such features", value=kind, remedy=f"choose one of {get_args(Kind)}")
    if slots_ND.shape[1] != layout.width:
        raise InputError(
            f"these records have {slots_ND.shape[1]} slots, not {layout.width}",
            remedy="give the layout of the vectoriser that made them",
        )
    last_ND = slots_ND[sequences.last]
    if kind == "last":
        return last_ND
    lengths_N = sequences.lengths
    if kind == "history":
        shares_ND = slots_ND[sequences.rows] / layout.sizes_D.astype(np.float32)
        means_ND = np.add.reduceat(shares_ND, sequences.starts[:-1], axis=0) / lengths_N[:, None]
        return np.hstack([last_ND, means_ND, lengths_N[:, None]], dtype=np.float32)
    longest = int(lengths_N.max())
    flat_NLD = np.zeros((len(sequences), longest, layout.width), dtype=slots_ND.dtype)
    sequence = np.repeat(np.arange(len(sequences)), lengths_N)
    from_end = np.repeat(sequences.starts[1:], lengths_N) - np.arange(len(sequences.rows))
    flat_NLD[sequence, longest - from_end] = slots_ND[sequences.rows]
    return flat_NLD.reshape(len(sequences), longest * layout.width)


def feature_kinds(layout: Layout, features: int, *, kind: Kind) -> tuple[SlotKind, ...]:
    """What each column of `sequence_features` holds."""
    slots = tuple(slot.kind for slot in layout.slots)
    if kind == "flat":
        return slots * (features // layout.width)
    number: SlotKind = "number"
    return slots + (number,) * (features - layout.width)


# ---- models ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fitted:
    """A scikit-learn classifier whose probabilities have a column for every class, seen in training or not."""

    model: Any
    classes: int

    def predict_proba(self, x_NF: NDArray[Any]) -> NDArray[np.float64]:
        p_NQ = np.zeros((len(x_NF), self.classes))
        p_NQ[:, self.model.classes_] = self.model.predict_proba(x_NF)
        return p_NQ


def lightgbm(
    train_NF: NDArray[Any],
    labels_N: Numbers,
    validation_NF: NDArray[Any],
    validation_labels_N: Numbers,
    *,
    kinds: Sequence[SlotKind],
    classes: int,
    balanced: bool = False,
    seed: int = 0,
) -> Fitted:
    """LightGBM with the settings of the code ceiling, stopped on the validation loss; categories have no order.

    `labels_N` are class numbers, each below `classes`; `balanced` weighs every class alike.
    """
    try:
        from lightgbm import LGBMClassifier, early_stopping
    except ImportError as error:
        raise MissingExtraError("this baseline needs LightGBM", remedy="pip install 'tefm[doctor]'") from error
    # as many threads as OpenMP is allowed: on cores that others use too, threads waiting for each other cost far more
    settings = {**LIGHTGBM, "n_estimators": TREES, "n_jobs": 0, "random_state": seed}
    model = LGBMClassifier(**settings, class_weight="balanced" if balanced else None)
    seen_N = np.isin(validation_labels_N, labels_N)  # LightGBM refuses classes it has not learned
    with warnings.catch_warnings():
        # its successors eval_X and eval_y are missing from the versions before
        warnings.filterwarnings("ignore", message="The argument 'eval_set' is deprecated")
        model.fit(
            train_NF,
            labels_N,
            eval_set=[(validation_NF[seen_N], validation_labels_N[seen_N])],
            categorical_feature=[column for column, kind in enumerate(kinds) if kind == "category"],
            callbacks=[early_stopping(PATIENCE, verbose=False)],
        )
    return Fitted(model, classes)


def logistic(
    train_NF: NDArray[Any],
    labels_N: Numbers,
    validation_NF: NDArray[Any],
    validation_labels_N: Numbers,
    *,
    kinds: Sequence[SlotKind],
    classes: int,
    seed: int = 0,
) -> Fitted:
    """A logistic regression on one-hot categories, scaled numbers and flags, its strength chosen on validation."""
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    of_kind = {
        wanted: [c for c, kind in enumerate(kinds) if kind == wanted] for wanted in ("category", "number", "flag")
    }
    columns = [
        ("category", OneHotEncoder(handle_unknown="ignore"), of_kind["category"]),
        ("number", StandardScaler(), of_kind["number"]),
        ("flag", "passthrough", of_kind["flag"]),
    ]
    fitted = []
    for strength in STRENGTHS:
        linear = LogisticRegression(C=strength, max_iter=1_000, random_state=seed)
        fitted.append(Fitted(make_pipeline(ColumnTransformer(columns), linear).fit(train_NF, labels_N), classes))
    return min(fitted, key=lambda model: log_loss(model.predict_proba(validation_NF), validation_labels_N))


def log_loss(p_NQ: NDArray[np.float64], labels_N: Numbers) -> float:
    """The mean negative log-likelihood of the labels."""
    return -float(np.log(np.maximum(p_NQ[np.arange(len(labels_N)), labels_N], LEAST)).mean())


# ---- one comparison -------------------------------------------------------------------------------------------------

Fit = Callable[..., Fitted]
MODELS: Mapping[str, Fit] = {"lightgbm": lightgbm, "logistic": logistic}


def evaluate_tabular(
    slots_ND: NDArray[Any],
    layout: Layout,
    sequences: Sequences,
    labels: NDArray[Any],
    parts: NDArray[np.str_],
    kinds: Sequence[Kind] = ("last", "history"),
    *,
    models: Sequence[str] = tuple(MODELS),
    positive: int = 1,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, dict[str, Any]]:
    """Every model on the same split, with the features that do best on validation: highest AUROC, then lowest log-loss.

    `labels` and `parts` are per sequence; sequences without a label are left out. The test part is scored once, as
    the model answers (`test`) and after the calibration our own model gets too (`test_calibrated`).
    """
    labelled_N = np.array([label is not None for label in labels], dtype=bool)
    sequences, labels, parts = sequences.select(labelled_N), labels[labelled_N], parts[labelled_N]
    classes, numbers_N = class_numbers(labels)
    train_N, validation_N, test_N = (parts == part for part in PARTS)
    _check_parts(numbers_N, parts)
    features = {kind: sequence_features(slots_ND, sequences, layout, kind=kind) for kind in kinds}

    def judged(p_NQ: NDArray[Any], here_N: NDArray[np.bool_], predicted_N: Numbers | None = None) -> Scores:
        labels_N = numbers_N[here_N]
        return score(
            p_NQ, labels_N, classes, predicted_N=predicted_N, positive=positive, resamples=resamples, seed=seed
        )

    results: dict[str, dict[str, Any]] = {}
    for name in models:
        candidates = []
        for kind, x_NF in features.items():
            model = MODELS[name](
                x_NF[train_N],
                numbers_N[train_N],
                x_NF[validation_N],
                numbers_N[validation_N],
                kinds=feature_kinds(layout, x_NF.shape[1], kind=kind),
                classes=len(classes),
                seed=seed,
            )
            p_NQ = model.predict_proba(x_NF[validation_N])
            scores = judged(p_NQ, validation_N)
            loss = log_loss(p_NQ, numbers_N[validation_N])
            candidates.append((-np.nan_to_num(scores.auroc.value), loss, kind, model, p_NQ, scores))
        _, _, kind, model, p_NQ, _ = min(candidates, key=lambda candidate: candidate[:2])
        calibration = Calibration.fit(np.log(np.maximum(p_NQ, LEAST)), numbers_N[validation_N], positive=positive)
        test_NQ = model.predict_proba(features[kind][test_N])
        calibrated_NQ = calibration.probabilities(np.log(np.maximum(test_NQ, LEAST)))
        results[name] = {
            "kind": kind,
            "train": int(train_N.sum()),
            "validation": {kind: scores.to_dict() for _, _, kind, _, _, scores in candidates},
            "calibration": calibration.to_dict(),
            "test": judged(test_NQ, test_N).to_dict(),
            "test_calibrated": judged(calibrated_NQ, test_N, calibration.predict(calibrated_NQ)).to_dict(),
        }
    return results


def _check_parts(numbers_N: Numbers, parts: NDArray[np.str_]) -> None:
    for part in PARTS:
        found = len(np.unique(numbers_N[parts == part]))
        # a model needs two classes to learn, a choice and a score some sequence to be made on
        if found < (2 if part == "train" else 1):
            raise InputError(
                f"the {part} part has labels of {found} classes",
                value=part,
                remedy="give more labelled sequences, or split stratified by the label",
            )
