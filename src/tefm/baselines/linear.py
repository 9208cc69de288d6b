"""Logistic regression on the slots of a sequence, and on the words of its text.

One-hot categories, scaled numbers, flags as they are, words weighted by TF-IDF. Six settings, chosen on validation: C
of 0.003, 0.01, 0.03, 0.1, 0.3 or 1; with words, whose weights are small, C of 0.1, 0.3, 1, 3, 10 or 30.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from tefm.baselines.choice import Chosen, Examples, Fitted, Task, choose
from tefm.baselines.inputs import Features

STRENGTHS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
#: The first is the one that a search for the best inputs uses.
WORD_STRENGTHS = (3.0, 0.1, 0.3, 1.0, 10.0, 30.0)


def fit_logistic(train: Examples[Features], validation: Examples[Features], task: Task) -> Chosen:
    """A logistic regression on the slots, with its strength chosen on validation."""
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    features = train.inputs
    columns = ColumnTransformer(
        [
            ("category", OneHotEncoder(handle_unknown="ignore"), features.of_kind("category")),
            ("number", StandardScaler(), features.of_kind("number")),
            ("flag", "passthrough", features.of_kind("flag")),
        ]
    )
    columns.fit(features.x_NF)

    def transform(features: Features) -> Any:
        from scipy.sparse import csr_matrix, hstack

        x_NF = columns.transform(features.x_NF)
        return x_NF if features.words_NV is None else hstack([csr_matrix(x_NF), features.words_NV], format="csr")

    strengths = STRENGTHS if features.words_NV is None else WORD_STRENGTHS
    return choose(regressions(train, transform, strengths, {}, task), validation, task)


def regressions(
    train: Examples[Any],
    transform: Callable[[Any], Any],
    strengths: Sequence[float],
    settings: Mapping[str, Any],
    task: Task,
) -> Iterator[tuple[Fitted, Mapping[str, Any]]]:
    """A logistic regression on the transformed inputs for each strength; `settings` are those of the transformation."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    x_NF, (seen, positions_N) = transform(train.inputs), train.seen
    for tried in task.grid([{**settings, "C": strength} for strength in strengths]):
        linear = LogisticRegression(C=tried["C"], max_iter=1_000, random_state=task.seed)
        with warnings.catch_warnings():
            # a fit that stops early is a weaker candidate, and validation decides whether it is good enough
            warnings.simplefilter("ignore", ConvergenceWarning)
            linear.fit(x_NF, positions_N)

        def predict(inputs: Any, linear: Any = linear) -> NDArray[Any]:
            p_NQ: NDArray[Any] = linear.predict_proba(transform(inputs))
            return p_NQ

        yield Fitted(predict, seen, task.classes), tried
