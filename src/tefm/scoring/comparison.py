"""Two models on the same sequences: which one is better here, or that no difference can be told."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.scoring.bootstrap import Interval
from tefm.scoring.metrics import Metric, paired_difference, score


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model says about some sequences."""

    probabilities_NQ: NDArray[Any]
    predicted_N: NDArray[Any]


@dataclass(frozen=True)
class Verdict:
    """Two models compared, the one with the higher score first.

    >>> print(Verdict(("LightGBM", "TEFM"), "AUROC", (0.885, 0.875), Interval(0.010, 0.002, 0.019)).sentence)
    LightGBM is better here: AUROC 0.885 against 0.875 of TEFM, difference 0.010 [0.002, 0.019]
    >>> print(Verdict(("LightGBM", "TEFM"), "AUROC", (0.885, 0.875), Interval(0.010, -0.004, 0.024)).sentence)
    No difference can be told here: AUROC 0.885 of LightGBM, 0.875 of TEFM, difference 0.010 [-0.004, 0.024]
    """

    models: tuple[str, str]
    #: AUROC with two classes, accuracy with more
    metric: str
    values: tuple[float, float]
    #: the first minus the second, with its 95% interval
    difference: Interval

    @property
    def better(self) -> str | None:
        """The better model; None where the interval of the difference includes 0."""
        return self.models[0] if self.difference.low > 0 else None

    @property
    def sentence(self) -> str:
        (first, second), (high, low) = self.models, self.values
        if self.better is not None:
            return (
                f"{first} is better here: {self.metric} {high:.3f} against {low:.3f} of {second}, "
                f"difference {self.difference}"
            )
        return (
            f"No difference can be told here: {self.metric} {high:.3f} of {first}, {low:.3f} of {second}, "
            f"difference {self.difference}"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "models": list(self.models),
            "metric": self.metric,
            "values": list(self.values),
            "difference": self.difference.to_dict(),
            "better": self.better,
            "sentence": self.sentence,
        }


def compare(
    models: Mapping[str, Predictions], labels_N: NDArray[Any], *, positive: int = 1, resamples: int = 1000
) -> Verdict | None:
    """Two models on the same labelled sequences, by a paired bootstrap; None where the metric is not defined."""
    classes = next(iter(models.values())).probabilities_NQ.shape[1]
    metric: Metric = "auroc" if classes == 2 else "accuracy"
    values = {
        name: getattr(
            score(
                model.probabilities_NQ,
                labels_N,
                tuple(map(str, range(classes))),
                predicted_N=model.predicted_N,
                positive=positive,
                resamples=0,
            ),
            metric,
        ).value
        for name, model in models.items()
    }
    if any(map(math.isnan, values.values())):
        return None
    first, second = sorted(values, key=lambda name: -values[name])
    difference = paired_difference(
        metric,
        models[first].probabilities_NQ,
        models[second].probabilities_NQ,
        np.asarray(labels_N),
        a_predicted_N=models[first].predicted_N,
        b_predicted_N=models[second].predicted_N,
        positive=positive,
        resamples=resamples,
    )
    title = "AUROC" if metric == "auroc" else metric
    return Verdict((first, second), title, (values[first], values[second]), difference)
