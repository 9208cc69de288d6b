"""The commonest class of the training part, whoever asks: what every other model has to beat.

Settings: none. Its probabilities are the shares of the classes.
"""

from __future__ import annotations

from collections.abc import Sized

import numpy as np

from tefm.baselines.choice import Chosen, Examples, Fitted, Task, choose


def fit_majority(train: Examples[Sized], validation: Examples[Sized], task: Task) -> Chosen:
    """
    >>> examples = Examples([""] * 4, np.array([2, 0, 2, 2]))
    >>> fit_majority(examples, examples, Task(classes=3)).predict_proba(["anyone"]).tolist()
    [[0.25, 0.0, 0.75]]
    """
    seen, places_N = train.seen
    shares_Q = np.bincount(places_N) / len(places_N)
    model = Fitted(lambda inputs: np.tile(shares_Q, (len(inputs), 1)), seen, task.classes)
    return choose([(model, {})], validation, task)
