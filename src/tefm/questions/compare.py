"""One LightGBM per question, on the same labels: what a user would fit who knows the questions beforehand.

Shapes: H histories, N records, D slots, P pairs of a history and a question.
"""

from __future__ import annotations

import numpy as np

from tefm.base.progress import progress
from tefm.baselines.boosted import fit_lightgbm
from tefm.baselines.choice import Examples, Task
from tefm.baselines.inputs import Features, Records, sequence_features
from tefm.questions.answers import Histories
from tefm.questions.data import Pairs, QuestionData
from tefm.questions.measure import auroc_of
from tefm.records.layout import Layout, Slots


def lightgbm_per_question(
    data: QuestionData,
    layout: Layout,
    slots: tuple[Slots, Slots, Slots],
    tested: Histories,
    pairs: Pairs,
    *,
    seed: int = 0,
) -> dict[int, float]:
    """The test AUROC of a LightGBM for each trained question, by its number; it sees every training label of it.

    `slots` are those of the training, validation and test records; `pairs` are the test pairs that our model answers.
    """
    features = [
        sequence_features(Records(x_ND, layout, part.histories), "history")
        for x_ND, part in zip(slots, (data.training, data.validation, tested), strict=True)
    ]
    figures = {}
    with progress("fitting one LightGBM per question", len(data.trained)) as advance:
        for question in data.trained.tolist():
            train, validation = (
                _examples(part, of_part, question)
                for part, of_part in zip((data.training, data.validation), features, strict=False)
            )
            own = pairs.of(question)
            yes_P = pairs.answer_P[own] == 1
            if len(np.unique(train.labels_N)) == 2 and len(np.unique(validation.labels_N)) == 2:
                chosen = fit_lightgbm(train, validation, Task(2, seed=seed, tries=1))
                p_P2 = chosen.predict_proba(features[2][pairs.history_P[own]])
                if (value := auroc_of(p_P2[:, 1], yes_P).auroc) is not None:
                    figures[question] = value
            advance(1)
    return figures


def _examples(part: Histories, features: Features, question: int) -> Examples[Features]:
    asked = np.flatnonzero(part.answers_HQ[:, question] >= 0)
    return Examples(features[asked], part.answers_HQ[asked, question].astype(np.int64))
