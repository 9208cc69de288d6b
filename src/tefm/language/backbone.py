"""Backbones: any causal language model in the Hugging Face format, given by name, folder or hub id.

A domain that was added to a finished one has an `Adapter`: low-rank changes and new rows. The shared weights stay as
they are, so other domains answer as before, to the bit, and all of them share the memory of one language model.

Shapes: T new tokens, H width of the language model, r rank, O and I outputs and inputs of a linear layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tefm.base.errors import InputError, SettingsError, TefmError, extra, first_line
from tefm.language.smollm2 import NAME as SMOLLM2
from tefm.language.smollm2 import quietly, smollm2_folder

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase


import copy
import itertools
import json
from collections.abc import Mapping

from torch import Tensor, nn

from tefm.base.errors import ArtefactError
from tefm.base.files import replacing

#: A hub id is a name, or an owner and a name.
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
#: What to do about a folder that cannot be opened.
SAVE_BOTH = "give a folder with a model and its tokenizer, both written by `save_pretrained`"


@dataclass
class Backbone:
    """A language model with float32 weights, in evaluation mode, and its tokenizer."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    @property
    def hidden_size(self) -> int:
        return int(self.model.config.hidden_size)

    @property
    def tied(self) -> bool:
        """Whether the head shares the weights of the embedding."""
        head = self.model.get_output_embeddings()
        return head is not None and head.weight is self.model.get_input_embeddings().weight

    @property
    def window(self) -> int | None:
        """The width of the sliding attention window, for models that have one (Gemma-2, Phi-3)."""
        width = self.model.config.to_dict().get("sliding_window")
        return int(width) if width else None

    @property
    def device(self) -> torch.device:
        device: torch.device = self.model.device
        return device


def open_backbone(
    name: str | Path, *, layers: int | None = None, device: str | torch.device | None = None, sealed: bool = False
) -> Backbone:
    """Load a backbone by name (`smollm2-135m`, the built-in one), by folder, or by hub id.

    `layers` keeps only the first blocks, below the same final norm and head. `sealed` is for the folder of a bundle,
    which must hold exactly the weights that the model has. Code of a model is never run.
    """
    with extra("language", "a language model needs the package transformers, which is not installed"):
        from transformers import AutoConfig, AutoTokenizer

    source = _source(name)
    with quietly(), _explained_errors(source):
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        _check_causal(config, source)
        if layers is not None:
            config = _with_layers(config, layers)
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
        if tokenizer.pad_token is None:
            raise InputError(
                "this tokenizer has no pad, eos or unk token",
                file=source,
                remedy="set one (`tokenizer.pad_token = ...`) and save the tokenizer again "
                "(`tokenizer.save_pretrained`)",
            )
        model = _pretrained(source, config, sealed)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return Backbone(str(name), model.eval().to(device), tokenizer)


def turns(tokenizer: PreTrainedTokenizerBase) -> tuple[str, str]:
    """The text before and after a user's message, up to where the assistant begins to answer.

    Both come from the chat template, without the system prompt that some templates add by default.
    """
    if tokenizer.chat_template is None:
        return "", "\n"
    from jinja2 import TemplateError

    def render(*messages: tuple[str, str], answer: bool) -> str:
        conversation = [{"role": role, "content": content} for role, content in messages]
        return str(tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=answer))

    system_message, user_message = "SYSTEM-MESSAGE", "USER-MESSAGE"
    plain = render(("user", user_message), answer=True)
    try:  # our system message replaces the default one, and can then be cut off
        system = render(("system", system_message), answer=False)
        both = render(("system", system_message), ("user", user_message), answer=True)
    except TemplateError:  # this template has no system role
        system = both = ""
    turn = both.removeprefix(system)
    if system_message not in system or turn == both:
        turn = plain
    start = tokenizer.bos_token
    if start and plain.startswith(start) and not turn.startswith(start):
        turn = start + turn  # it was cut off with the system message
    before, _, after = turn.partition(user_message)
    return before, after


def _source(name: str | Path) -> str:
    """The argument of `from_pretrained`: an existing folder, or a hub id."""
    if name == SMOLLM2:
        return str(smollm2_folder())
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            problem = "this folder is not a language model: it has no config.json"
            raise InputError(problem, file=folder, remedy=SAVE_BOTH)
        return str(folder)
    if isinstance(name, Path) or not HUB_ID.fullmatch(name):
        raise InputError(
            "no such folder",
            file=folder,
            remedy=f"give an existing folder, a hub id such as 'Qwen/Qwen3-0.6B', or {SMOLLM2!r}, the built-in model",
        )
    return name


@contextmanager
def _explained_errors(source: str) -> Iterator[None]:
    """Turn the errors of transformers into ones that name the folder or hub id, and what to do."""
    from safetensors import SafetensorError

    try:
        yield
    except TefmError:
        raise
    except (OSError, ValueError, SafetensorError) as error:
        reason = first_line(error)
        if Path(source).is_dir():
            problem = f"this folder cannot be opened as a language model: {reason}"
            raise InputError(problem, file=source, remedy=SAVE_BOTH) from error
        raise InputError(
            f"no such folder, and the Hugging Face hub does not provide it: {reason}",
            value=source,
            remedy=f"check the name and the network, give a local folder, or use {SMOLLM2!r}, the built-in model",
        ) from error


def _check_causal(config: PretrainedConfig, source: str) -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

    if config.architectures:
        causal = any(name in CAUSAL.values() for name in config.architectures)
    else:
        causal = config.model_type in CAUSAL
    if not causal:
        raise InputError(
            "this is not a causal language model",
            file=source,
            value=(config.architectures or [config.model_type])[0],
            remedy=f"use one that predicts the next token, such as Qwen3, Gemma-2, Phi-4-mini or {SMOLLM2!r}",
        )


def _with_layers(config: PretrainedConfig, layers: int) -> PretrainedConfig:
    """The architecture with only its first blocks; the other blocks are never loaded."""
    blocks = int(config.num_hidden_layers)
    if not 1 <= layers <= blocks:
        raise SettingsError(
            f"setting 'layers': this backbone has {blocks} blocks",
            value=layers,
            remedy=f"set `layers` to a number from 1 to {blocks}, or leave it out to use all blocks",
        )
    changes = {
        key: value[:layers]  # layer_types and similar lists have one entry per block
        for key, value in config.to_dict().items()
        if "layer" in key and isinstance(value, list) and len(value) == blocks
    }
    return type(config).from_dict({**config.to_dict(), **changes, "num_hidden_layers": layers})


def _pretrained(source: str, config: PretrainedConfig, sealed: bool) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(
        source,
        config=config,
        dtype=torch.float32,
        output_loading_info=True,
        trust_remote_code=False,
        use_safetensors=True,  # never a pickle
    )
    model: PreTrainedModel
    model, report = loaded
    if missing := sorted(report["missing_keys"]):  # transformers would fill them with random numbers
        problem = f"{len(missing)} weights of this model are missing from its files"
        raise InputError(problem, file=source, value=missing[0], remedy="copy or download the model again")
    if sealed and (others := sorted(report["unexpected_keys"])):
        problem = "the files of this model hold weights that it does not have"
        remedy = "its settings are those of another model: save it again"
        raise InputError(problem, file=source, value=others[0], remedy=remedy)
    if sealed and not all(bool(weights.isfinite().all()) for weights in model.parameters()):
        raise InputError("the weights of this model are not all finite", file=source, remedy="save it again")
    return model


def autocast(device: torch.device) -> AbstractContextManager[None]:
    """bfloat16 on GPUs that support it; float32 on a CPU, where bfloat16 is very slow."""
    supported = device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.autocast("cuda", dtype=torch.bfloat16) if supported else nullcontext()


# ---- an adapter of a domain ------------------------------------------------------------------------------------------


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
                raise SettingsError("this adapter belongs to another language model", value=name, remedy="fit it again")
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
