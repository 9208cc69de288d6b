"""Backbones: any causal language model in the Hugging Face format, given by name, folder or hub id."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tefm.base.errors import ArtefactError, InputError, SettingsError, TefmError, extra, first_line
from tefm.language.smollm2 import NAME as SMOLLM2
from tefm.language.smollm2 import quietly, smollm2_folder

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

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
        return self.model.device


def open_backbone(
    name: str | Path,
    *,
    layers: int | None = None,
    device: str | torch.device | None = None,
    sealed: bool = False,
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
    return model


def autocast(device: torch.device) -> AbstractContextManager[None]:
    """bfloat16 on GPUs that support it; float32 on a CPU, where bfloat16 is very slow."""
    supported = device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.autocast("cuda", dtype=torch.bfloat16) if supported else nullcontext()


# ---- the language model of a bundle ---------------------------------------------------------------------------------


#: The files that `save_pretrained` writes for a model and a tokenizer.
ALLOWED = re.compile(
    r"(config|generation_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab)\.json"
    r"|chat_template\.(jinja|json)|additional_chat_templates/[\w-]+\.jinja"
    r"|model(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json|merges\.txt|vocab\.txt|tokenizer\.model"
)
#: Settings that make `transformers` load something from elsewhere.
FOREIGN = (
    "auto_map", "custom_pipelines", "quantization_config", "attn_implementation", "_attn_implementation",
    "adapter_name_or_path", "base_model_name_or_path", "vocab_file", "merges_file", "tokenizer_file", "custom_generate",
)  # fmt: skip


def check_sealed(folder: Path) -> None:
    """Refuse the language model of a bundle that could run code or read files of another place."""
    remedy = "use a bundle that `tefm fit` or `save` wrote"
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_dir() and not path.name.startswith(".") and not ALLOWED.fullmatch(name):
            allowed = "only safetensors weights, settings and a tokenizer"
            problem = f"the language model of a bundle has no such file: {allowed}"
            raise ArtefactError(problem, file=path, remedy=remedy)
    for name in ("config.json", "tokenizer_config.json", "generation_config.json"):
        if not (path := folder / name).is_file():
            continue
        body = _settings(path)
        if foreign := next((setting for setting in FOREIGN if body.get(setting) is not None), None):
            problem = f"the setting {foreign!r} would load code or files from elsewhere"
            raise ArtefactError(problem, file=path, remedy=remedy)
        if name == "config.json":
            _check_shapes(path, body)


def _check_shapes(path: Path, config: dict[str, Any]) -> None:
    """Refuse settings that promise other weights than there are, before memory is taken for them."""
    from safetensors import safe_open

    blocks, rows = set(), {}
    for weights in sorted(path.parent.glob("*.safetensors")):
        with safe_open(weights, framework="np") as file:
            for name in file.keys():  # noqa: SIM118  # not a mapping
                if block := re.search(r"\.(?:layers|h|blocks)\.(\d+)\.", name):
                    blocks.add(int(block[1]))
                elif len(shape := file.get_slice(name).get_shape()) == 2:
                    rows[name] = shape
    layers = config.get("num_hidden_layers", config.get("n_layer"))
    vocabulary, width = config.get("vocab_size"), config.get("hidden_size", config.get("n_embd"))
    if not isinstance(layers, int) or isinstance(layers, bool) or not 1 <= layers == len(blocks) == max(blocks) + 1:
        promised = f"{layers!r} layers, the weights have {len(blocks)}"
    elif not any(shape == [vocabulary, width] for shape in rows.values()):
        promised = f"{vocabulary!r} tokens of {width!r} numbers, the weights have {list(rows.values())}"
    else:
        return
    raise ArtefactError(f"the settings promise {promised}", file=path, remedy="save it again")


def _settings(path: Path) -> dict[str, Any]:
    """A JSON file of settings."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(body, dict):
            raise ValueError("not a JSON object")
        return body
    except (OSError, ValueError, RecursionError) as error:
        raise ArtefactError(f"not a readable JSON file: {error}", file=path, remedy="save the model again") from error
