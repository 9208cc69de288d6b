"""TabPFN (Hollmann et al. 2025), a network pretrained to learn from small tables.

Users install the package (`pip install 'tefm[tabpfn]'`), which downloads the weights, under their own licence, at its
first fit. If either is missing, one error says so.

Four settings, chosen on validation: an ensemble of 4 or 16, averaged before or after the softmax. Its limits on rows
and columns are lifted, since there are many slots; its limit on classes stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError, MissingExtraError, extra
from tefm.tabular.inputs import Features
from tefm.tabular.learners import Candidate, Chosen, Examples, LearningTask, choose

MEMBERS = (4, 16)
#: Sequences per prediction, which bounds the memory.
CHUNK = 512


def fit_tabpfn(train: Examples[Features], validation: Examples[Features], task: LearningTask) -> Chosen:
    """TabPFN on the slots of a sequence."""
    with extra("tabpfn", "this baseline needs TabPFN"):
        from tabpfn import TabPFNClassifier

    device = task.device or "auto"
    _need_weights(TabPFNClassifier, device)
    seen, positions_N = train.seen

    def candidates() -> Iterator[Candidate]:
        for members in MEMBERS:
            for before_softmax in (False, True):
                settings: dict[str, Any] = {"n_estimators": members, "average_before_softmax": before_softmax}
                model = TabPFNClassifier(
                    **settings,
                    categorical_features_indices=train.inputs.of_kind("category"),
                    device=device,
                    ignore_pretraining_limits=True,
                    random_state=task.seed,
                )
                try:
                    model.fit(train.inputs.x_NF.astype(np.float32), positions_N)
                except ValueError as error:  # one of its limits, such as the number of classes
                    raise InputError(
                        f"TabPFN cannot fit these {len(train.inputs):,} sequences of {len(seen)} classes: "
                        f"{_first_line(error)}",
                        remedy="leave tabpfn out of the models",
                    ) from error
                yield partial(_predict, model), settings

    return choose(candidates(), seen, validation, task)


def _predict(model: Any, inputs: Features) -> NDArray[Any]:
    x_NF = inputs.x_NF.astype(np.float32)
    return np.concatenate([model.predict_proba(x_NF[start : start + CHUNK]) for start in range(0, len(x_NF), CHUNK)])


def _need_weights(classifier: Any, device: str) -> None:
    """Fit a small table: if that fails, it is because of the weights, not the user's table."""
    try:
        classifier(device=device).fit(np.tile(np.eye(4, dtype=np.float32), (4, 1)), np.arange(16) % 2)
    except Exception as error:  # no network, no licence, no disk: the package and its downloader raise anything
        raise MissingExtraError(
            f"the weights of TabPFN are missing: {_first_line(error)}",
            remedy="download them once, after accepting their licence (docs.priorlabs.ai), or leave tabpfn out",
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
