"""Stage 2: the new tokens learn what records of their code say, and the words learn their codes.

Two directions: codes → words and words → codes. What came of it is measured, never assumed: codes are written from
words under the constraint of their levels, and the loss of the words is compared with that under a wrong code.

Shapes: N records, D slots, K levels, C entries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tefm.base.progress import progress
from tefm.codes.fidelity import measure
from tefm.language.alignment_examples import AlignmentExamples
from tefm.language.backbone import Backbone, autocast
from tefm.language.batches import Batch, Example, ShuffledBatches, collate, model_inputs, padded
from tefm.language.config import AlignConfig
from tefm.language.predict import by_length, usual_tokens
from tefm.language.train import History, target_loss, train
from tefm.records.layout import Layout


def align(
    backbone: Backbone,
    describer: AlignmentExamples,
    x_ND: NDArray[Any],
    codes_NK: NDArray[np.integer],
    config: AlignConfig,
    *,
    checkpoint: Path | None = None,
) -> History:
    """Teach the backbone codes and words, in place."""
    if len(x_ND) > config.max_records:
        kept = np.sort(np.random.default_rng(config.seed).permutation(len(x_ND))[: config.max_records])
        x_ND, codes_NK = x_ND[kept], codes_NK[kept]
    batches = ShuffledBatches((x_ND != 0).sum(axis=1), config.batch, config.seed)
    pad, window = backbone.tokenizer.pad_token_id, backbone.window

    def batch_of(step: int) -> Batch:
        rng = np.random.default_rng((config.seed, 1, step))
        backward = rng.random() < config.backward
        rows = batches[step]
        return collate(
            [_drawn(describer, x_ND[row], codes_NK[row], backward, config, rng) for row in rows], pad, window
        )

    return train(
        backbone,
        describer.ids,
        batch_of,
        config.total_steps(len(x_ND)),
        config,
        title="aligning codes and words",
        checkpoint=checkpoint,
        fingerprint=data_fingerprint(x_ND, codes_NK) if checkpoint else "",
    )


def _drawn(
    describer: AlignmentExamples,
    x_D: NDArray[Any],
    code_K: NDArray[np.integer],
    backward: bool,
    config: AlignConfig,
    rng: np.random.Generator,
) -> Example:
    """One record as an example: all of its fields, or some of them drawn anew."""
    fields = np.array(describer.present(x_D))
    if backward:
        if rng.random() >= config.whole:
            fields = fields[rng.random(len(fields)) < rng.random()]
        return describer.to_code(x_D, code_K, fields.tolist())
    if config.sample is not None:
        fields = rng.permutation(fields)[: config.sample]
    if not len(fields):  # an empty record has no words to predict
        return describer.to_code(x_D, code_K, [])
    return describer.to_words(x_D, code_K, fields.tolist())


def data_fingerprint(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


# ---- what came of it --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Alignment:
    """How well words and codes know each other, on records that were not learned from."""

    records: int
    #: words → codes → slots, against the original slots
    slot_accuracy: float
    close_accuracy: float
    #: the same for the true codes, and for always guessing the most common value
    upper_slot_accuracy: float
    upper_close_accuracy: float
    mode_slot_accuracy: float
    #: share of exact codes, per level
    exact: tuple[float, ...]
    #: loss of the words given the true code, and given that of another record
    true_loss: float
    shuffled_loss: float

    @property
    def flow(self) -> float:
        """What the codes tell about the words, in nats per token."""
        return self.shuffled_loss - self.true_loss

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "flow": self.flow}


def measure_alignment(
    backbone: Backbone,
    describer: AlignmentExamples,
    x_ND: NDArray[Any],
    codes_NK: NDArray[np.integer],
    decode: Callable[[NDArray[np.integer]], NDArray[Any]],
    layout: Layout,
    mode_D: NDArray[Any],
    *,
    beam: int = 1,
    seed: int = 0,
) -> Alignment:
    """Measure on records that were kept apart; `decode` is the tokenizer's way back from codes to slots."""
    written_NK = write_codes(backbone, describer, x_ND, beam=beam)
    found = measure(x_ND, decode(written_NK), layout, mode_D)
    upper = measure(x_ND, decode(codes_NK), layout, mode_D)
    true, shuffled = flow(backbone, describer, x_ND, codes_NK, seed=seed)
    return Alignment(
        records=len(x_ND),
        slot_accuracy=found.slot_accuracy,
        close_accuracy=found.close_accuracy,
        upper_slot_accuracy=upper.slot_accuracy,
        upper_close_accuracy=upper.close_accuracy,
        mode_slot_accuracy=found.mode_slot_accuracy,
        exact=tuple((written_NK == codes_NK).mean(axis=0).tolist()),
        true_loss=true,
        shuffled_loss=shuffled,
    )


def write_codes(
    backbone: Backbone, describer: AlignmentExamples, x_ND: NDArray[Any], *, beam: int = 1
) -> NDArray[np.int64]:
    """The codes that the model writes for records in words, each level held to its own tokens."""
    ids = describer.ids
    asked = [describer.asking(x_D, describer.present(x_D)) for x_D in x_ND]
    out_NK = np.zeros((len(x_ND), ids.levels), dtype=np.int64)
    with torch.no_grad(), autocast(backbone.device), progress("writing codes from words", len(asked)) as advance:
        for rows in by_length([len(words) for words in asked], usual_tokens(backbone) // max(1, beam)):
            out_NK[rows] = _written(backbone, [asked[row] for row in rows], ids, beam)
            advance(len(rows))
    return out_NK


def _written(backbone: Backbone, asked: Sequence[NDArray[np.int64]], ids: Any, beam: int) -> NDArray[np.int64]:
    """Beam search over the levels: R beams of B prompts, best first."""
    ids_BT, mask_BT = (part.to(backbone.device) for part in padded(asked, backbone.tokenizer.pad_token_id))
    given = model_inputs(ids_BT, mask_BT, window=backbone.window)
    records, width = len(asked), 1
    cache = None
    codes_RK = ids_BT.new_zeros((records, 0))
    scores_R = torch.zeros(records, device=ids_BT.device)
    for level in range(ids.levels):
        answer = backbone.model(**given, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = answer.past_key_values
        own_RC = answer.logits[:, -1, ids.level(level)].float().log_softmax(dim=1)
        total_BX = (scores_R[:, None] + own_RC).view(records, width * ids.entries)
        best = total_BX.topk(min(beam, total_BX.shape[1]), dim=1)
        parents_R = best.indices // ids.entries + torch.arange(records, device=best.indices.device)[:, None] * width
        parents_R = parents_R.flatten()
        chosen_R = best.indices.flatten() % ids.entries
        width = best.indices.shape[1]
        codes_RK = torch.cat([codes_RK[parents_R], chosen_R[:, None]], dim=1)
        scores_R = best.values.flatten()
        if level + 1 < ids.levels:
            cache.reorder_cache(parents_R)
            mask_BT = mask_BT[parents_R]
            mask_BT = torch.cat([mask_BT, mask_BT.new_ones(len(mask_BT), 1)], dim=1)
            given = {
                "input_ids": chosen_R[:, None] + ids.level(level).start,
                "attention_mask": mask_BT,
                "position_ids": mask_BT.sum(dim=1, keepdim=True) - 1,
            }
    best_BK: NDArray[np.int64] = codes_RK.view(records, width, -1)[:, 0].cpu().numpy()
    return best_BK


def flow(
    backbone: Backbone,
    describer: AlignmentExamples,
    x_ND: NDArray[Any],
    codes_NK: NDArray[np.integer],
    *,
    seed: int = 0,
) -> tuple[float, float]:
    """The loss of the words, per token, given the true code and given another record's."""
    order = np.random.default_rng(seed).permutation(len(x_ND))
    others = np.empty_like(order)
    others[order] = np.roll(order, 1)  # nobody's other record is its own
    fields = [describer.present(x_D) for x_D in x_ND]
    said = np.flatnonzero([len(found) > 0 for found in fields])
    losses = []
    for given_NK in (codes_NK, codes_NK[others]):
        examples = [describer.to_words(x_ND[row], given_NK[row], fields[row]) for row in said]
        losses.append(words_loss(backbone, examples))
    return losses[0], losses[1]


def words_loss(backbone: Backbone, examples: Sequence[Example]) -> float:
    """The mean loss per target token."""
    total, count = 0.0, 0
    pad, window = backbone.tokenizer.pad_token_id, backbone.window
    with torch.no_grad(), autocast(backbone.device):
        # the logits of every word take the most memory here
        for rows in by_length([len(example.ids) for example in examples], usual_tokens(backbone) // 8):
            batch = collate([examples[row] for row in rows], pad, window).to(backbone.device)
            loss = target_loss(backbone.model, batch)
            total, count = total + float(loss), count + batch.targets
    return total / max(1, count)
