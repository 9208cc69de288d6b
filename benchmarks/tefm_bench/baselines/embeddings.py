"""LightGBM on the fields and on sentence embeddings, which are what a language model that was not fine-tuned makes of
the text: the mean of its hidden states.

Shapes: N records or sequences, h hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tefm.language.backbone import Backbone
from tefm.language.prediction import mean_states
from tefm.tabular.baselines import Baseline, BaselineData, slot_features
from tefm.tabular.inputs import PLUS
from tefm.tabular.learners import fit_lightgbm

#: The form of the text, in the name of a kind of inputs.
EMBEDDINGS = "sentence embeddings"
#: Tokens of a text that are read; of the tables that are measured, longer ones are rare.
LIMIT = 256


def embeddings_of(backbone: Backbone, texts: Sequence[str]) -> NDArray[np.float32]:
    """A vector for each text; without words it is that of a line break."""
    ids = [np.array(backbone.tokenizer.encode(text or "\n")[:LIMIT], dtype=np.int64) for text in texts]
    return mean_states(backbone, ids)


def lightgbm_with(embeddings_Nh: NDArray[np.float32]) -> Baseline:
    """LightGBM that may read the embedding of a sequence's last record too; validation chooses."""
    inputs = partial(_inputs, embeddings_Nh)
    return Baseline(fit_lightgbm, inputs, raw=True, samples=True, text_forms=(EMBEDDINGS,))


def _inputs(embeddings_Nh: NDArray[np.float32], data: BaselineData, kinds: Sequence[str]) -> list[tuple[str, Any]]:
    choices = []
    for kind in kinds:
        fields, _, form = kind.partition(PLUS)
        ((_, rows),) = slot_features(data, [fields])
        choices.append((kind, rows.with_numbers(embeddings_Nh[data.sequences.last]) if form else rows))
    return choices
