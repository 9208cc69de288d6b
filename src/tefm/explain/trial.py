"""What the surrogate expects of made-up cases: thousands of them in a fraction of a second.

Shapes: C rules or sets of kept features, B donors, T records of the explained sequence, D slots, M columns of text,
V records without repetition, A heads, h hidden, d latent, Q classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tefm.rationale.bag_of_words import ReadTexts
from tefm.rationale.masked_model import Keep
from tefm.rationale.surrogate import CHUNK, PLACES, FrozenCodes, Surrogate, slots_tensor
from tefm.scoring.calibration import Calibration, Floats, Folded
from tefm.tables.layout import Slots
from tefm.tables.sequences import Sequences, distinct_rows

#: At most this many slots of made-up cases are read at once.
MOST_SLOTS = 1 << 25
#: Donors of the search for features, and those that say which features the codes hold.
SEARCH, FEWER = 96, 32
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
    """One sequence, its donors, and the surrogate's answers to made-up cases; equal records are encoded once."""

    network: FrozenCodes
    surrogate: Surrogate
    x_TD: Slots
    #: the donors' records, B × T × D; the search asks about the first ones
    donors_BTD: Slots
    #: what the surrogate makes of their texts, where it reads them
    texts: ReadTexts | None = None
    #: of a model with a head beside the language model: the head's part of the logits, for sequences of slots. The
    #: surrogate then stands for the language model alone
    head: Callable[[Sequences], Floats] | None = None
    #: of a model whose classes are grouped: its probabilities as those of the groups
    calibration: Calibration = field(default_factory=Calibration)
    #: of each record with each of its masks, one row per donor: what the surrogate makes of it, and its attention
    _known: dict[Key, tuple[Tensor, Tensor]] = field(default_factory=dict)
    #: of each made-up case that has no texts, the answer
    _answered: dict[bytes, Tensor] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of a mask: records, and slots with the columns of text after them."""
        return len(self.x_TD), self.x_TD.shape[1] + (0 if self.texts is None else self.texts.columns)

    @property
    def cut_Q(self) -> Tensor:
        """The answer is the class with the largest p / cut; of groups, the most probable one."""
        return torch.ones(1) if isinstance(self.calibration, Folded) else self.surrogate.cut_Q

    @torch.inference_mode()
    def answers(self, keep_CTD: Keep) -> Tensor:
        """The probability of each class for each look-alike of some sets of features, C × B × Q.

        Most sets have most records in common: each record with its mask is read once, and weighed once.
        """
        if self.texts is not None:
            return self.answers_to(self._mixed(keep_CTD, self.donors_BTD[:SEARCH]), keep_CTD)
        keys = [[(t, keep_D.tobytes()) for t, keep_D in enumerate(keep_TD)] for keep_TD in keep_CTD]
        self._read(list(dict.fromkeys(key for of_set in keys for key in of_set if key not in self._known)))
        parts = []
        at_once = SETS if self.head is None else min(SETS, self._at_once(self.donors_BTD[:SEARCH]))
        for start in range(0, len(keys), at_once):
            p_CBQ = self._answers(keys[start : start + at_once])
            if self.head is not None:
                p_CBQ = self._headed(p_CBQ, self._mixed(keep_CTD[start : start + at_once], self.donors_BTD[:SEARCH]))
            parts.append(p_CBQ)
        return torch.from_numpy(self.calibration.fold(torch.cat(parts).numpy()))

    def _read(self, keys: list[Key]) -> None:
        """Let the surrogate read records that it has not read before."""
        donors_BTD, width = self.donors_BTD[:SEARCH], self.x_TD.shape[1]
        at_once = self._at_once(donors_BTD[:, :1])
        for some in (keys[start : start + at_once] for start in range(0, len(keys), at_once)):
            at = [t for t, _ in some]
            keep_UD = np.stack([np.frombuffer(mask, dtype=bool)[:width] for _, mask in some])
            mixed_UBD = np.where(keep_UD[:, None], self.x_TD[at][:, None], donors_BTD[:, at].swapaxes(0, 1))
            latent_Nd = self._shared_latents(mixed_UBD.reshape(-1, width).astype(self.x_TD.dtype))
            place_U = torch.tensor([len(self.x_TD) - 1 - t for t in at]).clamp_max(PLACES - 1)
            read_Nh, score_NA = self.surrogate.read(latent_Nd, place_U.repeat_interleave(len(donors_BTD)))
            pairs = zip(read_Nh.split(len(donors_BTD)), score_NA.split(len(donors_BTD)), strict=True)
            self._known.update(zip(some, pairs, strict=True))

    def _answers(self, keys: list[list[Key]]) -> Tensor:
        """Attention is a sum over records, divided by the sum of their weights: both are one product with the 0 and 1
        that say which of the versions of records each set has.
        """
        place = {key: number for number, key in enumerate(dict.fromkeys(key for of_set in keys for key in of_set))}
        read_VBh, score_VBA = (torch.stack(part) for part in zip(*(self._known[key] for key in place), strict=True))
        has_CV = torch.zeros(len(keys), len(place))
        for number, of_set in enumerate(keys):
            has_CV[number, [place[key] for key in of_set]] = 1
        # relative to the largest, so that nothing overflows; bounded, so that no sum of weights is zero
        weight_VBA = (score_VBA - score_VBA.amax(dim=0)).clamp_min(LEAST).exp()
        weighted_VBAh = weight_VBA[..., None] * read_VBh[:, :, None]
        sets, (donors, heads, hidden) = len(keys), weighted_VBAh.shape[1:]
        sum_CBAh = (has_CV @ weighted_VBAh.flatten(1)).view(sets * donors, heads, hidden)
        total_CBA = (has_CV @ weight_VBA.flatten(1)).view(sets * donors, heads, 1)
        return self.surrogate.conclude(sum_CBAh / total_CBA).softmax(dim=1).view(sets, donors, -1)

    def effects(self, cells_FTD: Keep, of_class: int) -> NDArray[np.float64]:
        """How much the probability of a class falls when some cells are taken from the donors."""
        keep_CTD = np.concatenate([np.ones((1, *self.shape), dtype=bool), ~cells_FTD])
        p_CB = self.answers(keep_CTD)[:, :, of_class].double().numpy()
        effects_F: NDArray[np.float64] = p_CB[0, 0] - p_CB[1:].mean(axis=1)
        return effects_F

    @torch.inference_mode()
    def answers_to(self, x_CBTD: Slots, keep_CTD: Keep) -> Tensor:
        """The probability of each class for made-up cases, C × B × Q; `keep_CTD` says which texts they keep."""
        sets, donors, length, width = x_CBTD.shape
        at_once = self._at_once(x_CBTD[0])
        if sets > at_once:
            starts = range(0, sets, at_once)
            parts = [slice(start, start + at_once) for start in starts]
            return torch.cat([self.answers_to(x_CBTD[part], keep_CTD[part]) for part in parts])
        if self.texts is not None:
            return self._asked(x_CBTD, keep_CTD)
        # widening comes to the same cases again and again
        x_NTD = np.ascontiguousarray(x_CBTD).reshape(-1, length, width)
        keys = [x_TD.tobytes() for x_TD in x_NTD]
        new = list({key: number for number, key in enumerate(keys) if key not in self._answered}.values())
        if new:
            p_NQ = self._asked(x_NTD[None, new], keep_CTD[:1])[0]
            self._answered.update(zip((keys[number] for number in new), p_NQ, strict=True))
        return torch.stack([self._answered[key] for key in keys]).view(sets, donors, -1)

    def _asked(self, x_CBTD: Slots, keep_CTD: Keep) -> Tensor:
        sets, donors, length, width = x_CBTD.shape
        place_N = np.tile(np.arange(length - 1, -1, -1).clip(max=PLACES - 1), sets * donors)
        wide_ND = np.column_stack([x_CBTD.reshape(-1, width), place_N.astype(x_CBTD.dtype)])
        first, number_N = distinct_rows(wide_ND)
        latent_Vd = self._latents(wide_ND[first, :-1])
        place_V, number = torch.from_numpy(place_N[first]), torch.from_numpy(number_N)
        if self.texts is None:
            read_Vh, score_VA = self.surrogate.read(latent_Vd, place_V)
        else:
            keep_CTM = keep_CTD[:, :, width:]
            words = [[self.texts.of(t, keep_TM[t])[:donors] for t in range(length)] for keep_TM in keep_CTM]
            words_Nh = torch.stack([torch.stack(of, dim=1) for of in words]).flatten(0, 2)
            read_Vh, score_VA = self.surrogate.read(latent_Vd[number], torch.from_numpy(place_N), words_Nh)
            number = torch.arange(len(number))
        rows_ST = number.view(-1, length)
        pooled_SAh = score_VA[rows_ST].softmax(dim=1).transpose(1, 2) @ read_Vh[rows_ST]
        p_CBQ = self.surrogate.conclude(pooled_SAh).softmax(dim=1).view(sets, donors, -1)
        p_CBQ = p_CBQ if self.head is None else self._headed(p_CBQ, x_CBTD)
        return torch.from_numpy(self.calibration.fold(p_CBQ.numpy()))

    def moved(self, keep_CTD: Keep) -> Tensor:
        """For which look-alikes the model reads something else than of the sequence: C, by some of the donors."""
        donors_BTD = self.donors_BTD[:FEWER]
        at_once = self._at_once(donors_BTD)
        some = [keep_CTD[start : start + at_once] for start in range(0, len(keep_CTD), at_once)]
        return torch.cat([self._moved(self._mixed(keep, donors_BTD)) for keep in some])

    def _moved(self, x_CBTD: Slots) -> Tensor:
        if self.head is not None:  # each slot may matter, whatever codes hold
            return torch.from_numpy((x_CBTD != self.x_TD).any(axis=(1, 2, 3)))
        latent_Nd = self._shared_latents(x_CBTD.reshape(-1, x_CBTD.shape[-1]))
        return (latent_Nd.view(*x_CBTD.shape[:3], -1) != self._latents(self.x_TD)).flatten(1).any(dim=1)

    @torch.inference_mode()
    def _latents(self, x_ND: Slots) -> Tensor:
        return torch.cat([self.network.latents(part) for part in slots_tensor(x_ND).split(CHUNK)])

    def _shared_latents(self, x_ND: Slots) -> Tensor:
        """The latents of records of which many are equal: each is computed once."""
        first, number_N = distinct_rows(x_ND)
        return self._latents(x_ND[first])[torch.from_numpy(number_N)]

    def _headed(self, p_CBQ: Tensor, x_CBTD: Slots) -> Tensor:
        """The answers of surrogate and head together; the head is so cheap that it answers itself."""
        assert self.head is not None, "the model has a head"
        log_CBQ = p_CBQ.double().clamp_min(LEAST_P).log()
        sets, donors, length, width = x_CBTD.shape
        first, number_N = distinct_rows(x_CBTD.reshape(sets * donors, -1))
        cases = Sequences(
            x_CBTD.reshape(-1, length, width)[first].reshape(-1, width), length * np.arange(len(first) + 1)
        )
        return (log_CBQ + torch.from_numpy(self.head(cases)[number_N]).view(log_CBQ.shape)).softmax(dim=2)

    def _mixed(self, keep_CTD: Keep, donors_BTD: Slots) -> Slots:
        mixed_CBTD: Slots = np.where(keep_CTD[:, None, :, : self.x_TD.shape[1]], self.x_TD, donors_BTD)
        return mixed_CBTD.astype(self.x_TD.dtype)

    def _at_once(self, x_BTD: Slots) -> int:
        """How many sets fit into memory, also of a table with thousands of columns."""
        return max(1, MOST_SLOTS // max(1, x_BTD.size))
