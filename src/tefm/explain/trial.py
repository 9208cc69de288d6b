"""What the surrogate expects of look-alikes: thousands of them in a fraction of a second.

Shapes: C sets of kept features, B donors, T records of the explained sequence, D slots, U records to encode, V versions
of records, A heads, h hidden, d latent, Q classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from tefm.codes.network import CodeNetwork
from tefm.rationale.bag_of_words import ReadTexts
from tefm.rationale.masked_model import Keep
from tefm.rationale.surrogate import CHUNK, PLACES, Surrogate, slots_tensor
from tefm.scoring.calibration import Calibration, Floats, Folded
from tefm.tables.layout import Slots
from tefm.tables.sequences import Sequences, distinct_rows

#: At most this many slots of look-alikes are encoded at once.
MOST_SLOTS = 1 << 25
#: Sets of features that the surrogate answers at once.
SETS = 64
#: The logarithm of the least weight of a record, relative to the largest.
LEAST = -60.0
#: The least probability of a class, whose logarithm is taken.
LEAST_P = 1e-12
#: A record of the sequence, and which of its slots are kept.
Key = tuple[int, bytes]


@dataclass(frozen=True, eq=False)
class Trial:
    """One sequence, its donors, and the surrogate's answers to its look-alikes; records are encoded once."""

    network: CodeNetwork
    surrogate: Surrogate
    x_TD: Slots
    #: the donors' records, B × T × D
    donors_BTD: Slots
    #: what the surrogate makes of their texts, where it reads them
    texts: ReadTexts | None = None
    #: of a model with a head beside the language model: the head's part of the logits, for sequences of slots. The
    #: surrogate then stands for the language model alone
    head: Callable[[Sequences], Floats] | None = None
    #: of a model whose classes are grouped: its probabilities as those of the groups
    calibration: Calibration = field(default_factory=Calibration)
    #: of each record with each of its masks, one row per donor: the codes, and what the surrogate makes of them
    _codes: dict[Key, Tensor] = field(default_factory=dict)
    _reads: dict[Key, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of a mask: records, and slots with the columns of text after them."""
        return len(self.x_TD), self.x_TD.shape[1] + (0 if self.texts is None else self.texts.columns)

    @torch.inference_mode()
    def answers(self, keep_CTD: Keep) -> Tensor:
        """The probability of each class for each look-alike, C × B × Q."""
        self._encode(keep_CTD)
        keys = _keys(keep_CTD)
        self._read(keys)
        p_CBQ = torch.cat([self._answers(keys[start : start + SETS]) for start in range(0, len(keys), SETS)])
        return self._concluded(p_CBQ, None if self.head is None else self._mixed(keep_CTD))

    def _concluded(self, p_CBQ: Tensor, mixed_CBTD: Slots | None) -> Tensor:
        """The answers of surrogate and head together, as those of groups where classes are grouped."""
        p_CBQ = p_CBQ if mixed_CBTD is None else self._headed(p_CBQ, mixed_CBTD)
        return torch.from_numpy(self.calibration.fold(p_CBQ.numpy()))

    @property
    def cut_Q(self) -> Tensor:
        """The answer is the class with the largest p / cut; of groups, the most probable one."""
        return torch.ones(1) if isinstance(self.calibration, Folded) else self.surrogate.cut_Q

    @torch.inference_mode()
    def answers_to(self, x_CBTD: Slots, keep_TD: Keep) -> Tensor:
        """The probability of each class for made-up cases of several rules, C × B × Q; `keep_TD` says which texts."""
        sets, donors, length, width = x_CBTD.shape
        at_once = max(1, MOST_SLOTS // x_CBTD[0].size)
        if sets > at_once:
            return torch.cat(
                [self.answers_to(some, keep_TD) for some in np.split(x_CBTD, range(at_once, sets, at_once))]
            )
        place_N = np.tile(np.arange(length - 1, -1, -1).clip(max=PLACES - 1), sets * donors)
        wide_ND = np.column_stack([x_CBTD.reshape(-1, width), place_N.astype(x_CBTD.dtype)])
        first, number_N = distinct_rows(wide_ND) if self.texts is None else (slice(None), np.arange(len(wide_ND)))
        tensor = slots_tensor(wide_ND[first, :-1])
        codes_NK = torch.cat([self.network.encode(part) for part in tensor.split(CHUNK)])
        words_Nh = None
        if self.texts is not None:
            words = [self.texts.of(record, keep_TD[record, width:]) for record in range(length)]
            words_Nh = torch.stack(words, dim=1).flatten(0, 1).repeat(sets, 1)
        place_V = torch.from_numpy(place_N[first])
        read_Vh, score_VA = self.surrogate.read(self.network.quantiser.embed(codes_NK), place_V, words_Nh)
        rows_ST = torch.from_numpy(number_N).view(-1, length)
        pooled_SAh = score_VA[rows_ST].softmax(dim=1).transpose(1, 2) @ read_Vh[rows_ST]
        p_CBQ = self.surrogate.conclude(pooled_SAh).softmax(dim=1).view(sets, donors, -1)
        return self._concluded(p_CBQ, None if self.head is None else x_CBTD)

    def codes(self, keep_CTD: Keep) -> Tensor:
        """What the model reads of the look-alikes' records: their codes (C × B × T × K), or their slots for a head."""
        if self.head is not None:  # each slot may matter, whatever codes hold
            return torch.from_numpy(self._mixed(keep_CTD).astype(np.int64))
        keys = self._encode(keep_CTD)
        return torch.stack([torch.stack([self._codes[key] for key in of_set], dim=1) for of_set in keys])

    def _answers(self, keys: list[list[Key]]) -> Tensor:
        """The surrogate's answers; most sets have most records in common, and each record is weighed once.

        Attention is a sum over records, divided by the sum of their weights: both are one product with the 0 and 1 that
        say which of the V versions of records each set has.
        """
        place = {key: number for number, key in enumerate(dict.fromkeys(key for of_set in keys for key in of_set))}
        reads = [self._reads[key] for key in place]
        read_VBh, score_VBA = (torch.stack(part) for part in zip(*reads, strict=True))
        has_CV = torch.zeros(len(keys), len(place))
        for number, of_set in enumerate(keys):
            has_CV[number, [place[key] for key in of_set]] = 1
        # relative to the largest, so that nothing overflows; bounded, so that no sum of weights is zero
        weight_VBA = (score_VBA - score_VBA.amax(dim=0)).clamp_min(LEAST).exp()
        weighted_VBAh = weight_VBA[..., None] * read_VBh[:, :, None]
        sets, (donors, heads, hidden) = len(keys), weighted_VBAh.shape[1:]
        sum_CBAh = (has_CV @ weighted_VBAh.flatten(1)).view(sets * donors, heads, hidden)
        total_CBA = (has_CV @ weight_VBA.flatten(1)).view(sets * donors, heads, 1)
        p_SQ: Tensor = self.surrogate.conclude(sum_CBAh / total_CBA).softmax(dim=1)
        return p_SQ.view(sets, donors, -1)

    def _read(self, keys: list[list[Key]]) -> None:
        """Let the surrogate read the records that it has not read before."""
        new = list(dict.fromkeys(key for of_set in keys for key in of_set if key not in self._reads))
        donors, width = len(self.donors_BTD), self.x_TD.shape[1]
        for some in (new[start : start + SETS] for start in range(0, len(new), SETS)):
            # the codes of a record do not depend on which of its texts are kept
            codes_NK = torch.cat([self._codes[record, mask[:width]] for record, mask in some])
            place_V = torch.tensor([len(self.x_TD) - 1 - record for record, _ in some]).clamp_max(PLACES - 1)
            latent_Nd = self.network.quantiser.embed(codes_NK)
            words_Nh = None
            if self.texts is not None:
                kept = [np.frombuffer(mask, dtype=bool)[width:] for _, mask in some]
                of_V = zip((record for record, _ in some), kept, strict=True)
                words_Nh = torch.cat([self.texts.of(record, keep_M) for record, keep_M in of_V])
            read_Nh, score_NA = self.surrogate.read(latent_Nd, place_V.repeat_interleave(donors), words_Nh)
            self._reads.update(zip(some, zip(read_Nh.split(donors), score_NA.split(donors), strict=True), strict=True))

    def _encode(self, keep_CTD: Keep) -> list[list[Key]]:
        """Encode the records of each set that have not been encoded before; returns all of them, by their masks."""
        width = self.x_TD.shape[1]
        keep_CTD = keep_CTD[:, :, :width]
        keys = _keys(keep_CTD)
        new = list(
            {key: number for number, of_set in enumerate(keys) for key in of_set if key not in self._codes}.items()
        )
        # in parts whose slots fit into memory, also of a table with thousands of columns
        at_once = max(1, MOST_SLOTS // self.donors_BTD[:, 0].size)
        for some in (new[start : start + at_once] for start in range(0, len(new), at_once)):
            record_U = [record for (record, _), _ in some]
            keep_UD = np.stack([keep_CTD[number, record] for (record, _), number in some])
            donors_UBD = self.donors_BTD[:, record_U].swapaxes(0, 1)
            mixed_UBD = np.where(keep_UD[:, None], self.x_TD[record_U][:, None], donors_UBD)
            with torch.inference_mode():
                parts = [self.network.encode(part) for part in slots_tensor(mixed_UBD.reshape(-1, width)).split(CHUNK)]
            codes_UBK = torch.cat(parts).view(len(some), len(self.donors_BTD), -1)
            self._codes.update(zip((key for key, _ in some), codes_UBK, strict=True))
        return keys

    # ---- a head beside the language model ---------------------------------------------------------------------

    def _headed(self, p_CBQ: Tensor, mixed_CBTD: Slots) -> Tensor:
        """The answers of surrogate and head together; the head is so cheap that it answers itself."""
        assert self.head is not None, "the model has a head"
        log_CBQ = p_CBQ.double().clamp_min(LEAST_P).log()
        sets, donors, length, width = mixed_CBTD.shape
        look_alikes = Sequences(mixed_CBTD.reshape(-1, width), length * np.arange(sets * donors + 1))
        return (log_CBQ + torch.from_numpy(self.head(look_alikes)).view(log_CBQ.shape)).softmax(dim=2)

    def _mixed(self, keep_CTD: Keep) -> Slots:
        x_TD = self.x_TD
        mixed_CBTD: Slots = np.where(keep_CTD[:, None, :, : x_TD.shape[1]], x_TD, self.donors_BTD)
        return mixed_CBTD.astype(x_TD.dtype)


def _keys(keep_CTD: Keep) -> list[list[Key]]:
    """The records of each set with their masks."""
    return [[(record, keep_D.tobytes()) for record, keep_D in enumerate(keep_TD)] for keep_TD in keep_CTD]
