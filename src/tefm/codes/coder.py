"""`SlotCoder`: slots in, codes out, and back; and how it is stored. Works with arrays only, without a table.

Fields of the entity have codes of their own, which follow those of the record: the levels of its profile. The record's
codes are made with them in view, and spend nothing on rebuilding them.

Shapes: N records, D slots, d latent, K levels of a record and of its profile.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tefm.base.errors import InputError, NotFittedError
from tefm.base.files import refusing, write_json
from tefm.base.training import History, identity
from tefm.codes.config import TokenizerConfig
from tefm.codes.fidelity import mode_of
from tefm.codes.network import CodeNetwork
from tefm.codes.trainer import CHUNK, Lessons, Trainer
from tefm.tables.layout import Layout, Slots
from tefm.tables.sequences import Sequences, class_numbers, distinct_rows
from tefm.tabular.inputs import Features
from tefm.tabular.teacher import Teacher

Codes = NDArray[np.uint16]

#: Records that are searched for equal ones at once.
AT_ONCE = 1 << 17
#: Records that are encoded at once on a CPU; a smaller batch is filled up to this size.
SAME_SHAPE = 512
#: Share of the groups (or rows) held out for early stopping when no validation records are given.
VALIDATION_SHARE = 0.1
#: The folder of the codes of the entity, within that of a coder.
PROFILE = "profile"
#: Mixed records that the label head learns from too, per training record and at most.
MIXED, MIXED_MOST = 3, 150_000


class SlotCoder:
    """Learns codes from slots, encodes and decodes.

    >>> import numpy as np
    >>> from tefm.codes.config import TokenizerConfig
    >>> from tefm.tables.layout import Layout, Slot
    >>> layout = Layout(tuple(Slot(f"bit {i}", "flag", 1) for i in range(4)))
    >>> x = np.array([[0, 0, 0, 0], [0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1]] * 16, dtype=np.uint8)
    >>> config = TokenizerConfig(levels=2, entries=2, latent=8, hidden=32, steps=600)
    >>> coder = SlotCoder(config, device="cpu").fit(x, layout)
    >>> codes = coder.encode(x)
    >>> len(np.unique(codes, axis=0)), bool((coder.decode(codes) == x).all())
    (4, True)
    """

    def __init__(self, config: TokenizerConfig, *, device: str | None = None) -> None:
        self.config = config
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.network_: CodeNetwork | None = None
        self.history_ = History()
        #: the most common value of each slot on the training records
        self.mode_D_: Slots = np.zeros(0, dtype=np.uint8)
        #: the classes whose scores the label head learned; empty for unsupervised codes
        self.classes_: tuple[str, ...] = ()
        #: what the label head learned from; None for unsupervised codes, and after loading
        self.teacher_: Teacher | None = None
        #: the codes of the entity; None where no field is static
        self.profile_: SlotCoder | None = None

    def fit(
        self,
        x_ND: Slots,
        layout: Layout,
        *,
        labels_N: NDArray[Any] | None = None,
        groups_N: NDArray[Any] | None = None,
        validation_ND: Slots | None = None,
        checkpoint: str | Path | None = None,
    ) -> SlotCoder:
        """Learn codes; `labels_N` (None where unknown) makes them task-aware.

        `groups_N` is the group (entity) of each record: a group is held out as a whole. Early stopping uses
        `validation_ND` (whose labels are not needed: the teacher answers for them) or else a tenth of the groups. With
        `checkpoint`, an interrupted run resumes.
        """
        if len(x_ND) < 2:
            raise InputError(
                f"{len(x_ND)} training record(s) are too few to learn codes from",
                remedy="give at least 2, better 1,000",
            )
        if labels_N is not None:
            self.classes_, self.teacher_ = teacher_of(x_ND, layout, labels_N, groups_N, seed=self.config.seed)
        groups_N = _numbers_of(groups_N, len(x_ND))
        given, held_out_N = validation_ND is not None, np.zeros(len(x_ND), dtype=bool)
        if validation_ND is None:
            held_out_N = _held_out(groups_N, self.config.seed)
            validation_ND = x_ND[held_out_N]
        self.profile_ = self._learned_profile(x_ND, layout, groups_N)
        self.config = self.config.resolved(layout)
        lessons = None
        if self.teacher_ is not None:
            learned = np.flatnonzero(~held_out_N)  # what training stops on takes no part in it
            mixed = self.teacher_.mixed(x_ND, learned, min(MIXED_MOST, MIXED * len(learned)), self.config.seed)
            log_NQ, validates_N = self.teacher_.log_NQ, held_out_N
            if given:
                log_NQ = np.vstack([log_NQ, self.teacher_.answers(validation_ND)])
                validates_N = np.arange(len(log_NQ)) >= len(x_ND)
            lessons = Lessons.of(log_NQ, validates_N, *mixed)
        checkpoint = Path(checkpoint) if checkpoint is not None else None
        trainer = Trainer(
            layout,
            self.config,
            x_ND[~held_out_N],
            validation_ND,
            lessons,
            device=self.device,
            checkpoint=checkpoint,
            fingerprint=identity(self.config.model_dump_json(), x_ND, labels_N) if checkpoint else "",
        )
        self.network_ = trainer.run()
        self.history_ = trainer.history
        self.mode_D_ = mode_of(x_ND, layout)
        if checkpoint is not None:
            checkpoint.unlink(missing_ok=True)
        return self

    def _learned_profile(self, x_ND: Slots, layout: Layout, groups_N: NDArray[np.int64]) -> SlotCoder | None:
        """A coder of the fields of the entity, with no more levels than its different values need."""
        if not layout.static_D.any():
            return None
        first_G = np.unique(groups_N, return_index=True)[1]
        profile_GD = x_ND[first_G if len(first_G) > 1 else slice(None)][:, layout.static_D]
        bits = math.log2(max(2, len(distinct_rows(profile_GD)[0]))) / math.log2(self.config.entries)
        levels = min(self.config.levels, math.ceil(bits))
        config = self.config.model_copy(update={"levels": levels, "hidden": None})
        return SlotCoder(config, device=str(self.device)).fit(profile_GD, layout.profile)

    @property
    def levels(self) -> int:
        """How many codes a record has, with those of its profile."""
        return self.config.levels + self.profile_levels

    @property
    def profile_levels(self) -> int:
        """How many of them are those of its profile, the last ones."""
        return 0 if self.profile_ is None else self.profile_.levels

    @property
    def latent_width(self) -> int:
        """The width of a record's latent, with that of its profile."""
        return self.config.latent + (0 if self.profile_ is None else self.profile_.latent_width)

    @property
    def codebooks_KCd(self) -> NDArray[np.float32]:
        """The vectors of all codes, level after level."""
        own_KCd: NDArray[np.float32] = self.network.quantiser.codebooks_KCd.detach().cpu().numpy()
        return own_KCd if self.profile_ is None else np.concatenate([own_KCd, self.profile_.codebooks_KCd])

    @property
    def network(self) -> CodeNetwork:
        if self.network_ is None:
            raise NotFittedError("this tokenizer is not fitted yet", remedy="call fit(table) or load(folder)")
        return self.network_

    @property
    def layout(self) -> Layout:
        return self.network.layout

    @property
    def identity(self) -> str:
        """A hash of the codebooks: the codes of one tokenizer have no meaning for another."""
        return hashlib.sha256(self.codebooks_KCd.tobytes()).hexdigest()[:16]

    # ---- forward and backward ---------------------------------------------------------------------------------

    def encode(self, slots_ND: NDArray[Any], *, beam: int | None = None) -> Codes:
        """The codes of records; equal records are encoded once."""
        own = self.config.levels
        out_NK = np.empty((len(slots_ND), self.levels), dtype=np.uint16)
        for start in range(0, len(slots_ND), AT_ONCE):
            part_ND = slots_ND[start : start + AT_ONCE]
            first, number_N = distinct_rows(part_ND)
            out_NK[start : start + AT_ONCE, :own] = self._encode(part_ND[first], beam)[number_N]
        if self.profile_ is not None:
            out_NK[:, own:] = self.profile_.encode(slots_ND[:, self.layout.static_D], beam=beam)
        return out_NK

    def coded(self, slots: Sequences) -> Sequences:
        """Sequences of slots as sequences of codes."""
        return slots.with_values(self.encode(slots.x_ND))

    def _encode(self, slots_ND: NDArray[Any], beam: int | None) -> Codes:
        """Codes in chunks of one size, the last one filled up.

        A product of matrices adds up in an order that depends on their shapes, and near-ties between codebook entries
        depend on that: only with one shape does a record get the same code alone as among others.
        """
        size = SAME_SHAPE if self.device.type == "cpu" else CHUNK

        def codes(part_ND: NDArray[Any]) -> torch.Tensor:
            filled_ND = np.pad(part_ND, ((0, size - len(part_ND)), (0, 0)))
            return self.network.encode(self._tensor(filled_ND), beam)[: len(part_ND)]

        return _filled(np.empty((len(slots_ND), self.config.levels), dtype=np.uint16), codes, slots_ND, size)

    def latent(self, slots_ND: NDArray[Any]) -> NDArray[np.float32]:
        """e, the latent before the quantiser."""
        out_Nd = np.empty((len(slots_ND), self.config.latent), dtype=np.float32)
        out_Nd = _filled(out_Nd, lambda part_ND: self.network.encode_latent(self._tensor(part_ND)), slots_ND)
        if self.profile_ is None:
            return out_Nd
        return np.hstack([out_Nd, self.profile_.latent(slots_ND[:, self.layout.static_D])])

    def embed(self, codes_NK: NDArray[Any]) -> NDArray[np.float32]:
        """ê, the quantised latent: all the information in the codes."""
        codes = self._codes(codes_NK)
        with torch.inference_mode():
            embedded_Nd: NDArray[np.float32] = self.network.quantiser.embed(codes).cpu().numpy()
        if self.profile_ is None:
            return embedded_Nd
        return np.hstack([embedded_Nd, self.profile_.embed(codes_NK[:, self.config.levels :])])

    def decode(self, codes_NK: NDArray[Any]) -> Slots:
        """The most likely slots of each code."""
        network, codes = self.network, self._codes(codes_NK)
        out_ND = np.empty((len(codes), self.layout.width), dtype=self.layout.dtype)
        out_ND = _filled(out_ND, lambda part_NK: network.decode(network.quantiser.embed(part_NK)), codes)
        if self.profile_ is not None:
            out_ND[:, self.layout.static_D] = self.profile_.decode(codes_NK[:, self.config.levels :])
        return out_ND

    def _tensor(self, slots_ND: NDArray[Any]) -> torch.Tensor:
        if slots_ND.shape[1] != self.layout.width:
            raise InputError(
                f"the records have {slots_ND.shape[1]} slots, but the tokenizer was fitted on {self.layout.width}",
                remedy="vectorise them with the vectoriser of this tokenizer",
            )
        return torch.from_numpy(np.ascontiguousarray(slots_ND)).to(self.device)

    def _codes(self, codes_NK: NDArray[Any]) -> torch.Tensor:
        """The record's own codes, without those of its profile."""
        codes_NK = np.asarray(codes_NK)
        levels, entries = self.levels, self.config.entries
        if codes_NK.ndim != 2 or codes_NK.shape[1] != levels:
            raise InputError(
                f"codes must be rows of {levels} numbers; these have the shape {codes_NK.shape}",
                remedy="decode with the tokenizer that encoded them",
            )
        if not np.issubdtype(codes_NK.dtype, np.integer):
            raise InputError(
                f"codes must be whole numbers, not {codes_NK.dtype}", remedy="give the codes as `encode` returns them"
            )
        outside = (codes_NK < 0) | (codes_NK >= entries)
        if outside.any():
            raise InputError(
                f"codes must be whole numbers from 0 to {entries - 1}",
                value=int(codes_NK[outside][0]),
                remedy="decode with the tokenizer that encoded them",
            )
        return torch.from_numpy(codes_NK[:, : self.config.levels].astype(np.int64)).to(self.device)


def _filled(out: NDArray[Any], compute: Callable[[Any], torch.Tensor], rows: Any, size: int = CHUNK) -> NDArray[Any]:
    """The array `out`, filled with what is computed from the rows, `size` of them at a time."""
    with torch.inference_mode():
        for start in range(0, len(rows), size):
            out[start : start + size] = compute(rows[start : start + size]).cpu().numpy()
    return out


def teacher_of(
    x_ND: Slots, layout: Layout, labels_N: NDArray[Any], groups_N: NDArray[Any] | None, *, seed: int
) -> tuple[tuple[str, ...], Teacher]:
    """The classes of the labels (None where unknown), and the teacher of the records; the same for the same seed."""
    classes, numbers_N = class_numbers(labels_N)
    features = Features(x_ND, tuple(slot.kind for slot in layout.slots))
    groups_N = _numbers_of(groups_N, len(x_ND))
    return classes, Teacher.fit([features], numbers_N, groups_N, classes=len(classes), seed=seed)


def _numbers_of(groups_N: NDArray[Any] | None, rows: int) -> NDArray[np.int64]:
    """The number of each record's group; without groups, ten records in a row are one."""
    return np.arange(rows) // 10 if groups_N is None else np.unique(groups_N, return_inverse=True)[1]


def _held_out(groups_N: NDArray[np.int64], seed: int) -> NDArray[np.bool_]:
    """A tenth of the groups, at least one and never all."""
    groups = int(groups_N.max()) + 1
    if groups == 1:  # one entity: the last tenth of its records
        return np.arange(len(groups_N)) >= len(groups_N) - max(1, len(groups_N) // 10)
    held_out = np.zeros(groups, dtype=bool)
    held_out[np.random.default_rng(seed).permutation(groups)[: max(1, round(VALIDATION_SHARE * groups))]] = True
    return held_out[groups_N]


# ---- on disk ---------------------------------------------------------------------------------------------------------


def save_coder(coder: SlotCoder, folder: Path) -> None:
    """Write the settings, the layout, what was learned and the weights into a folder, which the caller seals."""
    from safetensors.torch import save_file

    write_json(folder / "config.json", coder.config.model_dump(mode="json"))
    write_json(folder / "layout.json", coder.layout.to_json())
    learned = {"mode": coder.mode_D_.tolist(), "classes": coder.classes_, "history": asdict(coder.history_)}
    write_json(folder / "learned.json", learned)
    state = {name: value.detach().cpu().contiguous() for name, value in coder.network.state_dict().items()}
    save_file(state, str(folder / "network.safetensors"))
    if coder.profile_ is not None:
        (folder / PROFILE).mkdir()
        save_coder(coder.profile_, folder / PROFILE)


def load_coder(folder: Path, *, device: str | None = None) -> SlotCoder:
    """Read what `save_coder` wrote; parts that contradict each other are refused."""
    from safetensors.torch import load_file

    with refusing(folder, "tokenizer"):
        config = TokenizerConfig.stored(json.loads((folder / "config.json").read_text(encoding="utf-8")))
        layout = Layout.from_json(json.loads((folder / "layout.json").read_text(encoding="utf-8")))
        learned = json.loads((folder / "learned.json").read_text(encoding="utf-8"))
        state = load_file(str(folder / "network.safetensors"))
        _check_shapes(state, layout, config)
        network = CodeNetwork(layout, config, targets=len(state.get("head.bias", ())))
        network.load_state_dict(state)
        coder = SlotCoder(config, device=device)
        coder.network_ = network.to(coder.device).eval()
        coder.history_ = History(**learned["history"])
        coder.mode_D_ = np.array(learned["mode"], dtype=layout.dtype)
        coder.classes_ = tuple(learned["classes"])
        if layout.static_D.any():
            coder.profile_ = load_coder(folder / PROFILE, device=device)
            if coder.profile_.layout != layout.profile or coder.profile_.config.entries != config.entries:
                raise ValueError("the codes of the entity are of other fields")
    return coder


def _check_shapes(state: Mapping[str, Any], layout: Layout, config: TokenizerConfig) -> None:
    """Refuse settings that promise other weights than there are, before memory is taken for them."""
    sizes = layout.sizes_D
    if not layout.width or sizes.min() < 1 or sizes.max() > np.iinfo(np.uint16).max:
        raise ValueError("a slot has from 1 to 65,535 values")
    columns = layout.width if config.made.scaled else int(sizes.sum())
    shapes = {
        "encoder.0.weight": (config.hidden, columns),
        "quantiser.codebooks_KCd": (config.levels, config.entries, config.latent),
    }
    for name, shape in shapes.items():
        if tuple(state[name].shape) != shape:
            raise ValueError(f"{name} has the shape {tuple(state[name].shape)}, not {shape}")
