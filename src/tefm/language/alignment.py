"""Stage 2, alignment: the model learns to describe a code in words, and to write the code of a description.

The phrases of the schema are tokenised once and assembled per record. The result is measured in both directions: the
model writes codes from words, each level restricted to its own tokens, and the loss of the words given the true code is
compared with their loss given another record's code.

Shapes: N records, D slots, K levels, C entries, H width of the language model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tefm.base.progress import progress
from tefm.base.training import History, identity
from tefm.codes.coder import SlotCoder
from tefm.codes.fidelity import measure
from tefm.language.backbone import Backbone, autocast
from tefm.language.batches import Batch, Example, ShuffledBatches, collate, model_inputs, padded
from tefm.language.config import AlignConfig
from tefm.language.prediction import by_length, default_batch_tokens
from tefm.language.shortening import PlainText
from tefm.language.training_loop import target_loss, train
from tefm.language.vocabulary import TokenIds, rows_in_use, tokens_of
from tefm.tables.phrases import Phrases

#: The maximum number of training records.
MOST_RECORDS = 200_000
#: Fields of a description that is the target, drawn anew each time.
FIELDS = 4


def align(
    backbone: Backbone,
    examples: AlignmentExamples,
    x_ND: NDArray[Any],
    codes_NK: NDArray[np.integer],
    config: AlignConfig,
    *,
    checkpoint: Path | None = None,
) -> History:
    """Align codes and words: trains the backbone in place."""
    if len(x_ND) > MOST_RECORDS:
        rows = np.sort(np.random.default_rng(config.seed).permutation(len(x_ND))[:MOST_RECORDS])
        x_ND, codes_NK = x_ND[rows], codes_NK[rows]
    batches = ShuffledBatches((x_ND != 0).sum(axis=1), config.batch, config.seed)
    tokens = tokens_of(backbone, examples.ids.all, examples.words)
    with rows_in_use(backbone, tokens) as to_local:
        pad, window = int(to_local(backbone.tokenizer.pad_token_id)), backbone.window

        def batch_of(step: int) -> Batch:
            rng = np.random.default_rng((config.seed, 1, step))
            backward = rng.random() < config.backward
            drawn = [_draw(examples, x_ND[row], codes_NK[row], backward, config, rng) for row in batches[step]]
            return collate([replace(example, ids=to_local(example.ids)) for example in drawn], pad, window)

        return train(
            backbone,
            to_local(examples.ids.all).tolist(),
            batch_of,
            config.total_steps(len(x_ND)),
            config,
            title="aligning codes and words",
            checkpoint=checkpoint,
            fingerprint=identity(tokens, x_ND, codes_NK) if checkpoint else "",
        )


def _draw(
    examples: AlignmentExamples,
    x_D: NDArray[Any],
    code_K: NDArray[np.integer],
    backward: bool,
    config: AlignConfig,
    rng: np.random.Generator,
) -> Example:
    """One record as an example, with all of its fields or a random part of them."""
    fields = np.array(examples.present(x_D))
    if backward:
        if rng.random() >= config.whole:
            fields = fields[rng.random(len(fields)) < rng.random()]
        return examples.to_code(x_D, code_K, fields.tolist())
    if config.whole < 1:
        fields = rng.permutation(fields)[:FIELDS]
    if not len(fields):  # an empty record has no words to predict
        return examples.to_code(x_D, code_K, [])
    return examples.to_words(x_D, code_K, fields.tolist())


# ---- measuring the alignment ------------------------------------------------------------------------------------


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


# ---- training examples ----------------------------------------------------------------------------------------------


class AlignmentExamples:
    """Makes the training examples of the alignment: codes → words and words → codes."""

    def __init__(self, phrases: Phrases, tokenizer: Any, ids: TokenIds) -> None:
        self.phrases, self.ids = phrases, ids
        values = [f" {words}" for field in phrases.fields for slot in field.values for words in slot]
        titles = [f" {field.title}:" for field in phrases.fields]
        frame = [f"This {phrases.record}", ",", ".", f" This {phrases.record} is"]
        # a value of a category may look like a code
        plain = list(map(PlainText(tokenizer), [*values, *titles, *frame]))
        tokenised = iter(tokenizer(plain, add_special_tokens=False)["input_ids"])
        #: per slot the token ids of its values 1, 2, …
        self._values = {
            slot: [next(tokenised) for _ in slot_values]
            for field in phrases.fields
            for slot, slot_values in zip(field.slots, field.values, strict=True)
        }
        self._titles = [next(tokenised) for _ in titles]
        self._opening, self._comma, self._stop, self._closing = list(tokenised)

    @property
    def words(self) -> list[list[int]]:
        """The token ids of everything that a description may hold, besides codes."""
        values = [ids for slot_values in self._values.values() for ids in slot_values]
        return [*values, *self._titles, self._opening, self._comma, self._stop, self._closing]

    def present(self, x_D: NDArray[Any]) -> list[int]:
        """The numbers of the fields that have a value in this record."""
        return [number for number, field in enumerate(self.phrases.fields) if any(x_D[slot] for slot in field.slots)]

    def to_words(self, x_D: NDArray[Any], code_K: NDArray[np.integer], fields: Sequence[int]) -> Example:
        """`This admission <code> Age: 70–80. …`: the values are the target; the code and the titles are given."""
        code = [self.ids.begin, *self.ids.of(code_K).tolist(), self.ids.end]
        parts = [(self._opening, False), (code, False)]
        for number in fields:
            parts += [(self._titles[number], False), (self._value(x_D, number), True)]
        ids = np.array([token for tokens, _ in parts for token in tokens], dtype=np.int64)
        return Example(ids, np.repeat([target for _, target in parts], [len(tokens) for tokens, _ in parts]))

    def to_code(self, x_D: NDArray[Any], code_K: NDArray[np.integer], fields: Sequence[int]) -> Example:
        """`Age: 70–80. … This admission is <code>`: the code is the target."""
        return Example.answering(self.code_prompt(x_D, fields), self.ids.of(code_K))

    def code_prompt(self, x_D: NDArray[Any], fields: Sequence[int]) -> NDArray[np.int64]:
        """A record in words, up to where its code begins."""
        tokens: list[int] = []
        for number in fields:
            tokens += self._titles[number] + self._value(x_D, number)
        return np.array([*tokens, *self._closing, self.ids.begin], dtype=np.int64)

    def _value(self, x_D: NDArray[Any], number: int) -> list[int]:
        field = self.phrases.fields[number]
        if not field.several:
            return self._values[field.slots[0]][int(x_D[field.slots[0]]) - 1] + self._stop
        tokens: list[int] = []
        for slot in field.slots:
            if x_D[slot]:
                tokens += (self._comma if tokens else []) + self._values[slot][0]
        return tokens + self._stop

    def mean_embeddings(self, embedding_VH: NDArray[np.floating], x_ND: NDArray[Any]) -> NDArray[np.float32]:
        """The mean embedding of the words of each record's values."""
        sum_NH = np.zeros((len(x_ND), embedding_VH.shape[1]), dtype=np.float32)
        counts_N = np.zeros(len(x_ND), dtype=np.int64)
        for slot, values in self._values.items():
            for number, ids in enumerate(values, start=1):
                rows = np.flatnonzero(x_ND[:, slot] == number)
                sum_NH[rows] += embedding_VH[ids].mean(axis=0)
                counts_N[rows] += 1
        return (sum_NH / np.maximum(counts_N, 1)[:, None]).astype(np.float32)
