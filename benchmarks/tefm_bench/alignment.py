"""How well a language model translates between codes and words, after stage 2 and before the fine-tuning.

Both directions are measured: the model writes codes from words, each level restricted to its own tokens, and the loss
of the words given the true code is compared with their loss given another record's code.

Shapes: N records, D slots, K levels, C entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tefm.base.progress import progress
from tefm.codes.coder import SlotCoder
from tefm.codes.fidelity import measure
from tefm.language.alignment import AlignmentExamples
from tefm.language.backbone import Backbone, autocast
from tefm.language.batches import Example, collate, model_inputs, padded
from tefm.language.prediction import by_length, default_batch_tokens
from tefm.language.training_loop import target_loss
from tefm.language.vocabulary import TokenIds, rows_in_use, tokens_of
from tefm.pipeline.stages import Begun

#: Records that the alignment is measured on, at most, and the beams of the search for their codes.
MEASURED, BEAMS = 1_000, 4


def measured(begun: Begun) -> Alignment:
    """The alignment of a domain before its fine-tuning, on records of the validation part."""
    held_ND, backbone = begun.data.validation.slots_ND, begun.classifier.backbone
    chosen = np.sort(np.random.default_rng(begun.config.seed).permutation(len(held_ND))[:MEASURED])
    examples = AlignmentExamples(begun.data.phrases, backbone.tokenizer, begun.classifier.ids)
    return measure_alignment(backbone, examples, held_ND[chosen], begun.coder, beam=BEAMS)


@dataclass(frozen=True)
class Alignment:
    """How well the model translates between codes and words, on records that it was not trained on."""

    records: int
    #: words → codes → slots, against the original slots
    slot_accuracy: float
    close_accuracy: float
    #: the same for the true codes, and for always predicting the most common value
    upper_slot_accuracy: float
    upper_close_accuracy: float
    mode_slot_accuracy: float
    #: share of written codes that are exact, per level
    exact: tuple[float, ...]
    #: loss of the words per token, given the true code and given the code of another record
    true_loss: float
    shuffled_loss: float

    @property
    def flow(self) -> float:
        """The information that the codes hold about the words, in nats per token."""
        return self.shuffled_loss - self.true_loss

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "flow": self.flow}


def measure_alignment(
    backbone: Backbone,
    examples: AlignmentExamples,
    x_ND: NDArray[Any],
    coder: SlotCoder,
    *,
    beam: int = 1,
) -> Alignment:
    """Measure the alignment on held-out records, which `coder` encodes; `beam` is that of the search for codes."""
    codes_NK, written_NK = coder.encode(x_ND), write_codes(backbone, examples, x_ND, beam=beam)
    upper, written = (
        measure(x_ND, coder.decode(of_NK), coder.layout, coder.mode_D_) for of_NK in (codes_NK, written_NK)
    )
    true_loss, shuffled_loss = true_and_shuffled_loss(backbone, examples, x_ND, codes_NK)
    return Alignment(
        records=len(x_ND),
        slot_accuracy=written.slot_accuracy,
        close_accuracy=written.close_accuracy,
        upper_slot_accuracy=upper.slot_accuracy,
        upper_close_accuracy=upper.close_accuracy,
        mode_slot_accuracy=written.mode_slot_accuracy,
        exact=tuple((written_NK == codes_NK).mean(axis=0).tolist()),
        true_loss=true_loss,
        shuffled_loss=shuffled_loss,
    )


def write_codes(
    backbone: Backbone, examples: AlignmentExamples, x_ND: NDArray[Any], *, beam: int = 1
) -> NDArray[np.int64]:
    """The codes that the model writes for records described in words, each level restricted to its own tokens."""
    ids = examples.ids
    prompts = [examples.code_prompt(x_D, examples.present(x_D)) for x_D in x_ND]
    codes_NK = np.zeros((len(x_ND), ids.levels), dtype=np.int64)
    with torch.no_grad(), autocast(backbone.device), progress("writing codes from words", len(prompts)) as advance:
        for rows in by_length([len(prompt) for prompt in prompts], default_batch_tokens(backbone) // max(1, beam)):
            codes_NK[rows] = _beam_search(backbone, [prompts[row] for row in rows], ids, beam)
            advance(len(rows))
    return codes_NK


def _beam_search(
    backbone: Backbone, prompts: Sequence[NDArray[np.int64]], ids: TokenIds, beam: int
) -> NDArray[np.int64]:
    """The best code of each prompt, by beam search over the levels: R beams of B prompts, best first."""
    ids_BT, mask_BT = (tensor.to(backbone.device) for tensor in padded(prompts, backbone.tokenizer.pad_token_id))
    inputs = model_inputs(ids_BT, mask_BT, window=backbone.window)
    records, width = len(prompts), 1
    cache = None
    codes_RK = ids_BT.new_zeros((records, 0))
    scores_R = torch.zeros(records, device=ids_BT.device)
    for level in range(ids.levels):
        output = backbone.model(**inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = output.past_key_values
        scores_RC = output.logits[:, -1, ids.level(level)].float().log_softmax(dim=1)
        total_BX = (scores_R[:, None] + scores_RC).view(records, width * ids.entries)
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
            inputs = {
                "input_ids": chosen_R[:, None] + ids.level(level).start,
                "attention_mask": mask_BT,
                "position_ids": mask_BT.sum(dim=1, keepdim=True) - 1,
            }
    best_BK: NDArray[np.int64] = codes_RK.view(records, width, -1)[:, 0].cpu().numpy()
    return best_BK


def true_and_shuffled_loss(
    backbone: Backbone,
    examples: AlignmentExamples,
    x_ND: NDArray[Any],
    codes_NK: NDArray[np.integer],
    *,
    seed: int = 0,
) -> tuple[float, float]:
    """The loss of the words per token, given the true code and given the code of another record.

    As in training, the softmax is over the tokens that describe records, and not over the whole vocabulary.
    """
    order = np.random.default_rng(seed).permutation(len(x_ND))
    others = np.empty_like(order)
    others[order] = np.roll(order, 1)  # no record is its own partner
    fields = [examples.present(x_D) for x_D in x_ND]
    described = np.flatnonzero([len(present) > 0 for present in fields])

    with rows_in_use(backbone, tokens_of(backbone, examples.ids.all, examples.words)) as to_local:
        pad = int(to_local(backbone.tokenizer.pad_token_id))

        def loss(given_NK: NDArray[np.integer]) -> float:
            drawn = [examples.to_words(x_ND[row], given_NK[row], fields[row]) for row in described]
            return mean_target_loss(backbone, [replace(example, ids=to_local(example.ids)) for example in drawn], pad)

        return loss(codes_NK), loss(codes_NK[others])


def mean_target_loss(backbone: Backbone, examples: Sequence[Example], pad: int | None = None) -> float:
    """The mean loss per target token; `pad` is the id of the padding where it is not the tokenizer's."""
    total, count = 0.0, 0
    pad, window = int(backbone.tokenizer.pad_token_id) if pad is None else pad, backbone.window
    with torch.no_grad(), autocast(backbone.device):
        # an eighth of the usual tokens: here every word needs its logits
        for rows in by_length([len(example.ids) for example in examples], default_batch_tokens(backbone) // 8):
            batch = collate([examples[row] for row in rows], pad, window).to(backbone.device)
            loss = target_loss(backbone.model, batch)
            total, count = total + float(loss), count + batch.targets
    return total / max(1, count)
