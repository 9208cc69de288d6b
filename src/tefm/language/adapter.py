"""A domain that was added to a finished language model: low-rank changes and new rows, apart from the shared weights.

The language model itself is not touched, so whatever else reads it answers as before, to the bit. A model with an
adapter holds the same tensors: several domains take the memory of one language model and of their adapters.

Shapes: T new tokens, H width of the language model, r rank, O and I outputs and inputs of a linear layer.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tefm.base.errors import ArtefactError, SettingsError
from tefm.base.files import replacing
from tefm.language.backbone import Backbone

#: Singular values below this share of the largest are rounding.
ROUNDING = 1e-4


@dataclass(frozen=True)
class Adapter:
    """What a domain adds to a language model."""

    #: the new tokens, whose ids follow those of the tokenizer
    tokens: tuple[str, ...]
    rows_TH: Tensor
    #: per linear layer the factors of what is added to its weights: up_Or @ down_rI
    factors: Mapping[str, tuple[Tensor, Tensor]]

    @classmethod
    def between(cls, base: Backbone, tuned: Backbone, rank: int) -> Adapter:
        """What turns one language model into another whose weights differ by at most this rank.

        `tuned` is a copy of `base` that has further tokens; its weights hold their changes merged.
        """
        layers = {name: module for name, module in base.model.named_modules() if isinstance(module, nn.Linear)}
        others = dict(tuned.model.named_modules())
        head = base.model.get_output_embeddings()
        factors = {}
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            for name, layer in layers.items():
                change_OI = (others[name].weight - layer.weight).cpu() if layer is not head else torch.zeros(0)
                if change_OI.any():
                    factors[name] = _factors(change_OI, rank)
        first = len(base.tokenizer)
        tokens = tuned.tokenizer.convert_ids_to_tokens(list(range(first, len(tuned.tokenizer))))
        embedding: Any = tuned.model.get_input_embeddings()
        rows_TH = embedding.weight.detach()[first : first + len(tokens)].cpu().clone()
        return cls(tuple(tokens), rows_TH, factors)

    def applied(self, base: Backbone) -> AdaptedBackbone:
        """The language model with these changes; it shares the tensors of `base`, which stays as it is."""
        shared = {id(tensor): tensor for tensor in itertools.chain(base.model.parameters(), base.model.buffers())}
        model = copy.deepcopy(base.model, shared)
        for name, (up_Or, down_rI) in self.factors.items():
            parent, _, child = name.rpartition(".")
            layer = model.get_submodule(name)
            if not isinstance(layer, nn.Linear) or (len(up_Or), down_rI.shape[1]) != tuple(layer.weight.shape):
                raise SettingsError("this adapter is that of another language model", value=name, remedy="fit it again")
            setattr(model.get_submodule(parent), child, _LowRank(layer, up_Or.to(base.device), down_rI.to(base.device)))
        embedding: Any = model.get_input_embeddings()
        tokenizer = copy.deepcopy(base.tokenizer)
        tokenizer.add_tokens(list(self.tokens), special_tokens=True)
        longer = _LongerEmbedding(embedding, self.rows_TH.to(base.device), len(base.tokenizer))
        model.set_input_embeddings(longer)
        return AdaptedBackbone(base.name, model.eval(), tokenizer, self)

    # ---- on disk ----------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        from safetensors.torch import save_file

        tensors = {"rows": self.rows_TH.contiguous()}
        for name, (up_Or, down_rI) in self.factors.items():
            tensors |= {f"{name}.up": up_Or.contiguous(), f"{name}.down": down_rI.contiguous()}
        with replacing(path) as temporary:
            save_file(tensors, temporary, metadata={"tokens": json.dumps(self.tokens)})

    @classmethod
    def load(cls, path: Path) -> Adapter:
        from safetensors import safe_open

        with safe_open(path, framework="pt") as file:
            tokens = tuple(json.loads(file.metadata()["tokens"]))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a mapping
        rows_TH = tensors.pop("rows")
        layers = sorted({name.rpartition(".")[0] for name in tensors})
        finite = all(bool(tensor.isfinite().all()) for tensor in (rows_TH, *tensors.values()))
        if len(rows_TH) != len(tokens) or not finite:
            raise ArtefactError("the tokens and weights of this adapter differ", file=path, remedy="save it again")
        return cls(tokens, rows_TH, {name: (tensors[f"{name}.up"], tensors[f"{name}.down"]) for name in layers})


@dataclass
class AdaptedBackbone(Backbone):
    """A language model with an adapter, which shares its tensors with the one without."""

    adapter: Adapter


def shared_backbone(backbones: Iterable[Backbone]) -> Backbone:
    """The language model that domains share: that of one which was not added later."""
    return next(backbone for backbone in backbones if not isinstance(backbone, AdaptedBackbone))


def _factors(change_OI: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """A matrix of at most this rank as a product of two."""
    u_Or, s_r, v_Ir = torch.svd_lowrank(change_OI, q=min(rank + 4, *change_OI.shape), niter=4)
    kept = int((s_r > ROUNDING * s_r[0]).sum())
    return u_Or[:, :kept] * s_r[:kept], v_Ir[:, :kept].T.contiguous()


class _LowRank(nn.Module):
    """A linear layer and a low-rank change of its weights."""

    def __init__(self, layer: nn.Linear, up_Or: Tensor, down_rI: Tensor) -> None:
        super().__init__()
        self.layer = layer
        self.up, self.down = (nn.Parameter(factor, requires_grad=False) for factor in (up_Or, down_rI))

    def forward(self, x: Tensor) -> Tensor:
        changed: Tensor = self.layer(x) + nn.functional.linear(nn.functional.linear(x, self.down), self.up)
        return changed


class _LongerEmbedding(nn.Module):
    """An embedding and rows for further tokens, without a copy of its table."""

    def __init__(self, table: nn.Embedding, rows_TH: Tensor, first: int) -> None:
        super().__init__()
        self.table, self.first = table, first
        self.rows = nn.Parameter(rows_TH, requires_grad=False)

    @property
    def num_embeddings(self) -> int:
        return self.first + len(self.rows)

    def forward(self, ids: Tensor) -> Tensor:
        new = ids >= self.first
        known: Tensor = self.table(ids.masked_fill(new, 0))
        added = nn.functional.embedding((ids - self.first).clamp_min(0), self.rows)
        return torch.where(new[..., None], added, known)
