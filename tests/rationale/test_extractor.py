"""The extractor on records where it is known which field decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from conftest import Explained
from numpy.typing import NDArray
from torch import Tensor

from tefm.base.errors import ArtefactError, InputError, SettingsError
from tefm.base.files import read_tensors, write_tensors
from tefm.codes.coder import SlotCoder
from tefm.codes.config import RECIPES, Recipe, TokenizerConfig
from tefm.pipeline.config import ModelConfig
from tefm.rationale.config import RationaleConfig
from tefm.rationale.extractor import BATCH, Extractor, MaskExplainer, search_greedily
from tefm.rationale.masked_model import MaskedModel
from tefm.rationale.surrogate import Surrogate, latents, rows_of
from tefm.scoring.calibration import Calibration
from tefm.tables.layout import Layout, Slot
from tefm.tables.sequences import Sequences

LAYOUT = Layout(
    (
        *(Slot(f"field {i}", "category", 2) for i in range(5)),
        *(Slot("drugs", "flag", 1, str(i)) for i in range(3)),
    )
)
#: the slot that decides: 1 speaks for class 0, 2 for class 1, absent for neither
DECIDES = 2
QUICK: dict[str, Any] = {"surrogate_steps": 150, "surrogate_hidden": 32, "hidden": 32, "epochs": 12}


def make(sequences: int, seed: int = 0) -> Sequences:
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(rng.integers(1, 4, sequences))])
    sizes = LAYOUT.sizes_D
    x_ND = rng.integers(1, sizes + 1, (starts[-1], len(sizes)))
    x_ND[rng.random(x_ND.shape) < 0.2] = 0
    last_N = np.isin(np.arange(len(x_ND)), starts[1:] - 1)
    missing_N = last_N & (x_ND[:, DECIDES] == 0)
    x_ND[missing_N, DECIDES] = rng.integers(1, 3, int(missing_N.sum()))
    return Sequences(x_ND.astype(np.uint8), starts)


def answer(sequences: Sequences) -> NDArray[Any]:
    """The last record's deciding slot, and nothing else."""
    value_S = np.asarray(sequences.codes_NK)[sequences.starts[1:] - 1, DECIDES].astype(float)
    margin_S = np.select([value_S == 1, value_S == 2], [-3.0, 3.0], 0.0)
    return np.stack([-margin_S / 2, margin_S / 2], axis=1)


#: reads the slots themselves, so its answers do not depend on what the codes preserve
MODEL = MaskedModel(answer, Calibration())


@pytest.fixture(scope="module")
def coder() -> SlotCoder:
    config = TokenizerConfig(levels=3, entries=32, latent=16, hidden=64, steps=500)
    # few steps, and therefore a larger share of masked records
    with patch.dict(RECIPES, ours=Recipe(mask_share=0.5)):
        return SlotCoder(config, device="cpu").fit(make(300).x_ND, LAYOUT)


@pytest.fixture(scope="module")
def explainer(coder: SlotCoder) -> MaskExplainer:
    return MaskExplainer.fit(coder, make(300), MODEL, RationaleConfig(**QUICK))


def share_found(explainer: MaskExplainer, sequences: Sequences) -> float:
    """The share of sequences in whose last record the deciding slot ranks first."""
    return float(
        (explainer.rank(sequences, MODEL(sequences))[sequences.starts[1:] - 1].argmax(axis=1) == DECIDES).mean()
    )


def searched(explainer: MaskExplainer, sequences: Sequences, p_SQ: NDArray[np.float64]) -> NDArray[np.float32]:
    """The ranking that the extractor imitates."""
    decided_S = explainer.surrogate.decide(torch.from_numpy(p_SQ).float())
    return ranking(*search_greedily(explainer.network, explainer.surrogate, sequences, decided_S, "searching"))


def ranking(slot_NP: Tensor, value_NGP: Tensor) -> NDArray[np.float32]:
    """In [0, 1]: first the slots in the order they were chosen, then the others by their last value."""
    records, steps, places = value_NGP.shape
    # the step that chose each slot; the others rank after all steps
    turn_NP = torch.full((records, places), float(places))
    rest_NP = slot_NP >= 0
    for step in range(steps):
        value_NP = value_NGP[:, step]
        row_N = (value_NP > -torch.inf).any(dim=1).nonzero()[:, 0]
        chosen_N = value_NP[row_N].argmax(dim=1)
        turn_NP[row_N, chosen_N] = float(step)
        rest_NP[row_N, chosen_N] = False
    last_NP = value_NGP[:, -1].masked_fill(~rest_NP, -torch.inf)
    behind_NP = steps + last_NP.argsort(dim=1, descending=True).argsort(dim=1)
    turn_NP = torch.where(rest_NP, behind_NP, turn_NP)
    scores_ND = torch.zeros(records, LAYOUT.width)
    row, place = (slot_NP >= 0).nonzero(as_tuple=True)
    scores_ND[row, slot_NP[row, place]] = 1 - turn_NP[row, place] / max(1, places)
    return scores_ND.numpy()


def test_finds_the_field_that_decides(explainer: MaskExplainer) -> None:
    assert share_found(explainer, make(200, seed=1)) >= 0.95
    assert explainer.agreement_ is not None
    assert explainer.agreement_.whole_same >= 0.95
    assert explainer.agreement_.version_distance < 0.1


def test_the_preset_of_the_paper(coder: SlotCoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prediction needs the deciding slot only; the dual loss needs the others as well."""
    sequences = make(200, seed=1)
    last = sequences.starts[1:] - 1
    first = []
    for weight in (0.0, 1.0):
        monkeypatch.setattr(MaskExplainer, "CODE_WEIGHT", weight)
        config = RationaleConfig.preset("paper", **{**QUICK, "epochs": 20})
        explainer = MaskExplainer.fit(coder, make(300), MODEL, config)
        first.append(share_found(explainer, sequences))
        scores_SD = explainer.rank(sequences, MODEL(sequences))[last]
        assert scores_SD[:, DECIDES].mean() > scores_SD.sum() / (sequences.x_ND[last] > 0).sum()
    assert first[0] >= 0.5
    assert first[0] > first[1]


def test_the_search_that_is_imitated_finds_it(explainer: MaskExplainer) -> None:
    sequences = make(60, seed=1)
    scores_ND = searched(explainer, sequences, MODEL(sequences))
    assert (scores_ND[sequences.starts[1:] - 1].argmax(axis=1) == DECIDES).mean() >= 0.95


def test_absent_slots_come_last(explainer: MaskExplainer) -> None:
    sequences = make(50, seed=2)
    scores_ND = explainer.rank(sequences, MODEL(sequences))
    assert scores_ND.dtype == np.float32
    assert (scores_ND[sequences.x_ND == 0] == 0).all()
    assert (scores_ND[sequences.x_ND > 0] > 0).all()


def test_nothing_to_rank(explainer: MaskExplainer) -> None:
    none = make(5).select(np.zeros(0, dtype=np.int64))
    p_SQ = np.zeros((0, 2))
    assert explainer.rank(none, p_SQ).shape == searched(explainer, none, p_SQ).shape == (0, LAYOUT.width)
    blank = Sequences(np.zeros((2, LAYOUT.width), dtype=np.uint8), np.array([0, 2]))
    assert not explainer.rank(blank, np.array([[0.5, 0.5]])).any()
    assert not searched(explainer, blank, np.array([[0.5, 0.5]])).any()


def test_a_seed_decides_everything(coder: SlotCoder) -> None:
    def ranked(seed: int) -> NDArray[np.float32]:
        config = RationaleConfig(**{**QUICK, "surrogate_steps": 20, "epochs": 2, "seed": seed})
        sequences = make(50, seed=2)
        return MaskExplainer.fit(coder, make(60), MODEL, config).rank(sequences, MODEL(sequences))

    first_ND = ranked(0)
    torch.manual_seed(77)  # nothing hangs on the state of the caller's generator
    assert np.array_equal(ranked(0), first_ND)
    assert not np.array_equal(ranked(1), first_ND)


def test_a_restored_explainer_ranks_the_same(
    coder: SlotCoder, explainer: MaskExplainer, explained: Explained, tmp_path: Path
) -> None:
    sequences = make(50, seed=2)
    explainer.save(tmp_path / "explainer.safetensors")
    restored = MaskExplainer.load(coder, tmp_path / "explainer.safetensors")
    p_SQ = MODEL(sequences)
    assert np.array_equal(restored.rank(sequences, p_SQ), explainer.rank(sequences, p_SQ))
    assert restored.agreement_ == explainer.agreement_
    tensors, facts = read_tensors(tmp_path / "explainer.safetensors")
    wide = {**facts, "config": {**facts["config"], "hidden": 33}}
    for path, other in ((tmp_path / "wide.safetensors", tensors), (tmp_path / "empty.safetensors", {})):
        write_tensors(path, other, **wide)
        explained(ArtefactError, lambda path=path: MaskExplainer.load(coder, path), "cannot be loaded", path)


def test_training_does_not_change_the_coder(coder: SlotCoder, explainer: MaskExplainer) -> None:
    assert all(parameter.grad is None for parameter in explainer.network.parameters())
    assert any(parameter.requires_grad for parameter in coder.network.parameters())


def test_the_prediction_to_explain_can_be_given(explainer: MaskExplainer) -> None:
    sequences = make(50, seed=2)
    p_SQ = np.tile([0.95, 0.05], (50, 1))
    assert not np.array_equal(explainer.rank(sequences, p_SQ), explainer.rank(sequences, p_SQ[:, ::-1].copy()))


def test_the_number_of_model_predictions_is_bounded(coder: SlotCoder) -> None:
    calls = []

    def counted(sequences: Sequences) -> NDArray[Any]:
        calls.append(len(sequences))
        return answer(sequences)

    config = RationaleConfig(**{**QUICK, "questions": 200, "surrogate_steps": 20, "epochs": 2})
    MaskExplainer.fit(coder, make(300), MaskedModel(counted, Calibration()), config)
    assert len(calls) == 4
    assert sum(calls) <= 200


def test_too_few_sequences(coder: SlotCoder, explained: Explained) -> None:
    explained(InputError, lambda: MaskExplainer.fit(coder, make(1), MODEL, RationaleConfig()), "too few")


def test_settings(explained: Explained) -> None:
    paper = RationaleConfig.preset("paper", seed=5)
    assert (paper.recipe, paper.epochs, paper.seed, BATCH["paper"]) == ("paper", 100, 5, 32)
    assert (MaskExplainer.CODE_WEIGHT, MaskExplainer.SPARSITY) == (1, 0.1)
    explained(SettingsError, lambda: RationaleConfig.preset("papers"), "papers")  # type: ignore[arg-type]
    explained(SettingsError, lambda: RationaleConfig.preset("default", epoch=1), "epoch")


def test_settings_that_are_retired(
    coder: SlotCoder, explainer: MaskExplainer, explained: Explained, tmp_path: Path
) -> None:
    """Their defaults are accepted, and whatever an earlier version stored."""
    assert RationaleConfig.preset("paper", prediction_weight=1.0) == RationaleConfig.preset("paper")
    explained(SettingsError, lambda: RationaleConfig.preset("default", least_share=0.9), "least_share", "3%")
    explainer.save(tmp_path / "explainer.safetensors")
    tensors, facts = read_tensors(tmp_path / "explainer.safetensors")
    write_tensors(tmp_path / "old.safetensors", tensors, **{**facts, "config": {**facts["config"], "tolerance": 0.3}})
    assert MaskExplainer.load(coder, tmp_path / "old.safetensors").config == explainer.config
    assert ModelConfig.stored({"rationale": {"tolerance": 0.3}}).rationale_config == RationaleConfig()


def test_a_stored_extractor_of_the_paper_ranks_as_before(coder: SlotCoder, tmp_path: Path) -> None:
    paper = RationaleConfig.preset("paper", **{**QUICK, "surrogate_steps": 20, "epochs": 2})
    explainer, sequences = MaskExplainer.fit(coder, make(60), MODEL, paper), make(50, seed=2)
    explainer.save(tmp_path / "explainer.safetensors")
    tensors, facts = read_tensors(tmp_path / "explainer.safetensors")
    assert facts["config"].pop("recipe") == "paper"
    of_then = {
        "reads": "latents", "rounds": 0, "code_weight": 1.0, "sparsity": 0.1, "selection": "soft", "context": False,
        "batch": 32, "learning_rate": 1e-3, "versions": 2, "depth": 8, "targets": "probabilities",
    }  # fmt: skip
    write_tensors(tmp_path / "old.safetensors", tensors, **{**facts, "config": {**facts["config"], **of_then}})
    restored = MaskExplainer.load(coder, tmp_path / "old.safetensors")
    assert restored.config == paper
    assert np.array_equal(restored.rank(sequences, MODEL(sequences)), explainer.rank(sequences, MODEL(sequences)))


# ---- the pieces -----------------------------------------------------------------------------------------------------


def test_the_loss_is_the_papers_formula(coder: SlotCoder) -> None:
    torch.manual_seed(0)
    network, surrogate = coder.network, Surrogate(16, 2, 8)
    explainer = MaskExplainer(network, surrogate, Extractor(1, 1, 1), RationaleConfig.preset("paper"))
    sequences = make(2, seed=3)
    x_ND, rows_ST = torch.from_numpy(sequences.x_ND), rows_of(sequences.starts)
    z_ND = torch.rand(x_ND.shape)
    with torch.no_grad():
        whole_Nd, masked_Nd = network.encode_latent(x_ND), network.encode_latent(x_ND, z_ND)
        p_SQ, q_SQ = surrogate(whole_Nd, rows_ST).softmax(dim=1), surrogate(masked_Nd, rows_ST).softmax(dim=1)
        total, _ = explainer.loss(x_ND, rows_ST, z_ND, whole_Nd, p_SQ.log())
    code = ((masked_Nd - whole_Nd) ** 2).sum() / len(x_ND)
    prediction = (p_SQ * (p_SQ / q_SQ).log()).sum() / len(sequences)
    mass = z_ND.sum() / len(x_ND)
    assert float(total) == pytest.approx(float(code + prediction + 0.1 * mass), rel=1e-5)


def test_the_extractor_is_a_network_with_a_skip() -> None:
    extractor = Extractor(3, 2, 4)
    columns_NM = torch.tensor([[1.0, 0.0, 1.0]])
    with torch.no_grad():
        expected = extractor.body(columns_NM) + columns_NM @ extractor.skip.weight.T
    torch.testing.assert_close(extractor(columns_NM), expected)
    assert sum(isinstance(layer, torch.nn.Linear) for layer in extractor.body) == 3


def test_masks_as_they_occur_in_training_keep_present_slots(explainer: MaskExplainer) -> None:
    sequences = make(100, seed=5)
    keep_ND = explainer.sample(sequences, MODEL(sequences), torch.Generator().manual_seed(0))
    present_ND = sequences.x_ND > 0
    assert not keep_ND[~present_ND].any()
    share_N = keep_ND.sum(axis=1) / present_ND.sum(axis=1).clip(1)
    assert keep_ND.any(axis=1)[present_ND.any(axis=1)].all() and share_N.mean() < 0.6
    top_ND = explainer.rank(sequences, MODEL(sequences)).argmax(axis=1)
    assert keep_ND[np.arange(len(top_ND)), top_ND].mean() > 2 * keep_ND[present_ND].mean()


def test_the_search_gives_each_record_its_slots_one_by_one(
    explainer: MaskExplainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sequences = make(20, seed=4)
    depth = 6
    monkeypatch.setattr("tefm.rationale.extractor.DEPTH", depth)
    predicted_S = torch.from_numpy(MODEL.decide(MODEL(sequences)))
    slot_NP, value_NGP = search_greedily(explainer.network, explainer.surrogate, sequences, predicted_S, "searching")
    present_N = (sequences.x_ND > 0).sum(axis=1)
    open_NG = (value_NGP > -torch.inf).sum(dim=2).numpy()
    assert np.array_equal(open_NG, np.clip(present_N[:, None] - np.arange(depth), 0, None))
    assert np.array_equal(ranking(slot_NP, value_NGP) > 0, sequences.x_ND > 0)
    # the first value of a slot is the surrogate's log p with that slot alone, all other records being empty
    last = sequences.starts[1:] - 1
    place_S = (slot_NP[last] == DECIDES).int().argmax(dim=1)
    alone_ND = np.zeros_like(sequences.x_ND)
    alone_ND[last, DECIDES] = sequences.x_ND[last, DECIDES]
    read_Nd = latents(explainer.network, alone_ND)
    log_p_SQ = explainer.surrogate(read_Nd, rows_of(sequences.starts)).log_softmax(dim=1)
    value_S = value_NGP[last, 0, place_S]
    torch.testing.assert_close(value_S, log_p_SQ[torch.arange(20), predicted_S])
