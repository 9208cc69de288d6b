"""Backbones: any causal language model in the Hugging Face format, by its name, folder or hub id."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tefm.base.errors import InputError, MissingExtraError, SettingsError, TefmError
from tefm.language.smollm2 import NAME as SMOLLM2
from tefm.language.smollm2 import quietly, smollm2_folder

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

#: A hub id is a name, or an owner and a name.
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


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
        """How far back some of its layers see, where they do not see everything (Gemma-2, Phi-3)."""
        found = self.model.config.to_dict().get("sliding_window")
        return int(found) if found else None

    @property
    def device(self) -> torch.device:
        return self.model.device


def open_backbone(
    name: str | Path,
    *,
    layers: int | None = None,
    random_body: bool = False,
    seed: int = 0,
    device: str | torch.device | None = None,
) -> Backbone:
    """A backbone by name (`smollm2-135m`, embedded), by folder, or by hub id.

    `layers` keeps the first blocks alone, below the same final norm and head. `random_body` keeps the architecture
    and the tokenizer, and draws all weights anew from `seed`: what is lost then is what pretraining gave.
    """
    try:
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise MissingExtraError(
            "a language model needs the package transformers", remedy="pip install 'tefm[language]'"
        ) from error

    place = _place(name)
    with quietly(), _explaining(place):
        config = AutoConfig.from_pretrained(place)
        _check_causal(config, place)
        if layers is not None:
            config = _cut(config, layers)
        tokenizer = AutoTokenizer.from_pretrained(place)
        _check_tokenizer(tokenizer, place)
        if random_body:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        else:
            model = _pretrained(place, config)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return Backbone(str(name), model.eval().to(device), tokenizer)


def turns(tokenizer: PreTrainedTokenizerBase) -> tuple[str, str]:
    """The text before and after a user's message, up to where the assistant begins to answer.

    It comes from the chat template, without the system prompt that some templates add on their own.
    """
    if tokenizer.chat_template is None:
        return "", "\n"
    from jinja2 import TemplateError

    def render(*messages: tuple[str, str], answer: bool) -> str:
        conversation = [{"role": role, "content": content} for role, content in messages]
        return str(tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=answer))

    rules, mark = "SYSTEM-MESSAGE", "USER-MESSAGE"
    plain = render(("user", mark), answer=True)
    try:  # a system message of ours takes the place of the default one, and can be cut off again
        system = render(("system", rules), answer=False)
        both = render(("system", rules), ("user", mark), answer=True)
    except TemplateError:  # this template knows no system role
        system = both = ""
    turn = both.removeprefix(system)
    if rules not in system or turn == both:
        turn = plain
    start = tokenizer.bos_token
    if start and plain.startswith(start) and not turn.startswith(start):
        turn = start + turn  # it stood before the system message
    before, _, after = turn.partition(mark)
    return before, after


def _place(name: str | Path) -> str:
    """What `from_pretrained` takes: a folder that exists, or a hub id."""
    if name == SMOLLM2:
        return str(smollm2_folder())
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise InputError(
                "this folder holds no language model: it has no config.json",
                file=folder,
                remedy="give a folder that save_pretrained wrote, with the model and its tokenizer",
            )
        return str(folder)
    if isinstance(name, Path) or not HUB_ID.fullmatch(name):
        raise InputError(
            "there is no such folder", file=folder, remedy=f"give a folder, a hub id, or {SMOLLM2!r}, the embedded one"
        )
    return name


@contextmanager
def _explaining(place: str) -> Iterator[None]:
    """What transformers cannot open is the user's folder, name or network: say which, and what to do."""
    from safetensors import SafetensorError

    try:
        yield
    except TefmError:
        raise
    except (OSError, ValueError, SafetensorError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if Path(place).is_dir():
            raise InputError(
                f"this folder cannot be opened as a language model: {reason}",
                file=place,
                remedy="give a folder that save_pretrained wrote, with the model and its tokenizer",
            ) from error
        raise InputError(
            f"this is no folder, and the Hugging Face hub does not give it: {reason}",
            value=place,
            remedy=f"check the name and the network, give a local folder, or use {SMOLLM2!r}, the embedded one",
        ) from error


def _check_causal(config: PretrainedConfig, place: str) -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

    if config.architectures:
        causal = any(name in CAUSAL.values() for name in config.architectures)
    else:
        causal = config.model_type in CAUSAL
    if not causal:
        raise InputError(
            "this is no causal language model",
            file=place,
            value=(config.architectures or [config.model_type])[0],
            remedy=f"take one that predicts the next token, as Qwen3, Gemma-2, Phi-4-mini or {SMOLLM2!r}",
        )


def _check_tokenizer(tokenizer: PreTrainedTokenizerBase, place: str) -> None:
    """A tokenizer that can fill a batch: without a pad token, one that ends or stands for nothing pads as well."""
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    if tokenizer.pad_token is None:
        raise InputError(
            "this tokenizer has no pad, eos or unk token",
            file=place,
            remedy="set one (tokenizer.pad_token = ...) and save the tokenizer into the folder again",
        )


def _cut(config: PretrainedConfig, layers: int) -> PretrainedConfig:
    """The same architecture with its first blocks alone; a model made from it never loads the others."""
    there = int(config.num_hidden_layers)
    if not 1 <= layers <= there:
        raise SettingsError(
            f"setting 'layers': this backbone has {there} blocks", value=layers, remedy=f"give 1 to {there}, or none"
        )
    changes = {
        key: value[:layers]  # layer_types and its like hold one entry per block
        for key, value in config.to_dict().items()
        if "layer" in key and isinstance(value, list) and len(value) == there
    }
    return type(config).from_dict({**config.to_dict(), **changes, "num_hidden_layers": layers})


def _pretrained(place: str, config: PretrainedConfig) -> PreTrainedModel:
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(
        place, config=config, dtype=torch.float32, output_loading_info=True
    )
    model: PreTrainedModel
    model, report = loaded
    if report["missing_keys"]:  # transformers would fill them with random numbers
        missing = sorted(report["missing_keys"])
        raise InputError(
            f"{len(missing)} weights of this model are missing",
            file=place,
            value=missing[0],
            remedy="copy or download the model again",
        )
    return model


def autocast(device: torch.device) -> AbstractContextManager[None]:
    """Half precision where it is fast; on a CPU it is pathologically slow."""
    half = device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.autocast("cuda", dtype=torch.bfloat16) if half else nullcontext()
