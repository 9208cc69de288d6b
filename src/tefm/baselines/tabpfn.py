"""TabPFN (Hollmann et al. 2025), a network that has learned to learn from small tables.

Package and weights are the user's: `pip install 'tefm[tabpfn]'`, and the weights, under their own licence, are fetched
by the package at its first fit. Where one of them is absent there is one error that says so.

Settings, chosen on validation (4): 4 or 16 members of its ensemble, averaged before or after the softmax. Its limits on
rows and columns are lifted, since slots are many; that of its classes stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.base.errors import InputError, MissingExtraError
from tefm.baselines.choice import Chosen, Examples, Fitted, Task, choose
from tefm.baselines.inputs import Features

MEMBERS = (4, 16)
#: Sequences that are asked about at once, which bounds the memory.
CHUNK = 512


def fit_tabpfn(train: Examples[Features], validation: Examples[Features], task: Task) -> Chosen:
    """TabPFN on the slots of a sequence."""
    try:
        from tabpfn import TabPFNClassifier
    except ImportError as error:
        raise MissingExtraError("this baseline needs TabPFN", remedy="pip install 'tefm[tabpfn]'") from error

    device = task.device or "auto"
    _need_weights(TabPFNClassifier, device)
    seen, places_N = train.seen

    def candidates() -> Iterator[tuple[Fitted, dict[str, Any]]]:
        for members in MEMBERS:
            for early in (False, True):
                tried: dict[str, Any] = {"n_estimators": members, "average_before_softmax": early}
                model = TabPFNClassifier(
                    **tried,
                    categorical_features_indices=train.inputs.of_kind("category"),
                    device=device,
                    ignore_pretraining_limits=True,
                    random_state=task.seed,
                )
                try:
                    model.fit(train.inputs.x_NF.astype(np.float32), places_N)
                except ValueError as error:  # its own limits, of which the number of classes is one
                    raise InputError(
                        f"TabPFN does not take these {len(train.inputs):,} sequences of {len(seen)} classes: "
                        f"{_first_line(error)}",
                        remedy="leave tabpfn out of the models",
                    ) from error
                yield Fitted(partial(_asked, model), seen, task.classes), tried

    return choose(candidates(), validation, task)


def _asked(model: Any, inputs: Features) -> NDArray[Any]:
    x_NF = inputs.x_NF.astype(np.float32)
    return np.concatenate([model.predict_proba(x_NF[at : at + CHUNK]) for at in range(0, len(x_NF), CHUNK)])


def _need_weights(classifier: Any, device: str) -> None:
    """Fit a small table: what fails here is the weights, not the user's table."""
    try:
        classifier(device=device).fit(np.tile(np.eye(4, dtype=np.float32), (4, 1)), np.arange(16) % 2)
    except Exception as error:  # no network, no licence, no disk: the package and its downloader raise what they like
        raise MissingExtraError(
            f"TabPFN has no weights: {_first_line(error)}",
            remedy="fetch them once while online, with their licence accepted (docs.priorlabs.ai), or leave tabpfn out",
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
