"""The label head of task-aware codes: a score for each class, from the codes alone."""

from __future__ import annotations

import numpy as np
import pytest
from tefm_bench.tokenizers import label_scores

from tefm.codes.coder import SlotCoder
from tefm.codes.config import TokenizerConfig
from tefm.scoring.metrics import auroc
from tefm.tables.layout import Layout, Slot

pytestmark = pytest.mark.all

CONFIG = TokenizerConfig(levels=2, entries=8, latent=8, hidden=32, steps=200)


@pytest.mark.parametrize("classes", [("died", "survived"), ("a", "b", "c")])
def test_each_class_is_ranked_by_its_own_score(classes: tuple[str, ...]) -> None:
    """The label is written into the first slot; the other slots are noise."""
    rng = np.random.default_rng(0)
    numbers_N = rng.integers(0, len(classes), 600)
    x_ND = np.hstack([1 + numbers_N[:, None], rng.integers(0, 2, (600, 4))]).astype(np.uint8)
    layout = Layout((Slot("label", "category", len(classes)), *(Slot(f"bit {i}", "flag", 1) for i in range(4))))
    labels_N = np.array(classes, dtype=object)[numbers_N]
    coder = SlotCoder(CONFIG, device="cpu").fit(x_ND, layout, labels_N=labels_N)
    codes_NK = coder.encode(x_ND)

    scores_NQ = label_scores(coder, codes_NK, (*classes, "never seen"))
    for number in range(len(classes)):
        assert auroc(scores_NQ[:, number], numbers_N == number) > 0.95
    assert np.isneginf(scores_NQ[:, -1]).all()
    np.testing.assert_array_equal(label_scores(coder, codes_NK, classes[::-1]), scores_NQ[:, len(classes) - 1 :: -1])
