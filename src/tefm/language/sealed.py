"""The language model of a bundle: its files, settings, tokenizer and chat template may come from anyone.

What could run code, read files of another place or fill the memory is refused before it is loaded.
"""

from __future__ import annotations

import base64
import json
import math
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tefm.base.errors import ArtefactError, failing_as
from tefm.base.files import write_json
from tefm.language.backbone import turns

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

#: The files that `save_pretrained` writes for a model and a tokenizer.
ALLOWED = re.compile(
    r"(config|generation_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|turns)\.json"
    r"|chat_template\.(jinja|json)|additional_chat_templates/[\w-]+\.jinja"
    r"|model(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json|merges\.txt|vocab\.txt|tokenizer\.model"
)
#: Settings that make `transformers` load something from elsewhere.
FOREIGN = (
    "auto_map", "custom_pipelines", "quantization_config", "attn_implementation", "_attn_implementation",
    "adapter_name_or_path", "base_model_name_or_path", "vocab_file", "merges_file", "tokenizer_file", "custom_generate",
)  # fmt: skip
#: Bytes of a tokenizer and of other settings, at most: the largest known ones take a third of that.
LARGEST_TOKENIZER, LARGEST_SETTINGS = 128 << 20, 4 << 20
#: How many times as long a tokenizer may make a text before it splits it, and the characters that it may add.
GROWTH, ADDED = 16.0, 64
REMEDY = "use a bundle that `tefm fit` or `save` wrote"
#: What a tokenizer does to a text, and the settings of these steps that are added to none.
TEXT_STEPS = ("normalizer", "pre_tokenizer", "model", "decoder")
TABLES = ("vocab", "merges", "pattern", "precompiled_charsmap")


def check_sealed(folder: Path) -> None:
    """Refuse the language model of a bundle that could run code, read files of another place or fill the memory."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_dir() and not path.name.startswith(".") and not ALLOWED.fullmatch(name):
            allowed = "only safetensors weights, settings and a tokenizer"
            problem = f"the language model of a bundle has no such file: {allowed}"
            raise ArtefactError(problem, file=path, remedy=REMEDY)
    for name in ("config.json", "tokenizer_config.json", "generation_config.json"):
        if not (path := folder / name).is_file():
            continue
        body = _settings(path, LARGEST_SETTINGS)
        if foreign := next((setting for setting in FOREIGN if body.get(setting) is not None), None):
            problem = f"the setting {foreign!r} would load code or files from elsewhere"
            raise ArtefactError(problem, file=path, remedy=REMEDY)
        if name == "config.json":
            _check_shapes(path, body)
    if (path := folder / "tokenizer.json").is_file():
        _check_growth(path, _settings(path, LARGEST_TOKENIZER))


def _check_growth(path: Path, tokenizer: dict[str, Any]) -> None:
    """Refuse a tokenizer that makes a text much longer: its library would fill the memory, or end the process."""
    for name in TEXT_STEPS:
        if _growth(tokenizer.get(name)) > GROWTH:
            problem = f"the {name} of this tokenizer can make a text more than {GROWTH:g} times as long"
            raise ArtefactError(problem, file=path, remedy=REMEDY)


def _growth(step: Any) -> float:
    """How many times as long a step of a tokenizer can make a text; one that adds a long text has no limit."""
    if isinstance(step, str):
        return 1.0 if len(step) <= ADDED else math.inf
    if isinstance(step, list):
        return math.prod(map(_growth, step))
    if not isinstance(step, dict):
        return 1.0
    growth = 1.0
    if step.get("type") == "Replace":
        of, by = (step["pattern"] or {}).get("String"), step["content"]
        growth = max(1.0, len(by) / len(of)) if of else 1.0 + len(by)
    elif step.get("type") == "Precompiled":  # a trie, then the texts that it can put in place of a character
        table = base64.b64decode(step["precompiled_charsmap"] or "")
        texts = table[4 + int.from_bytes(table[:4], "little") :].split(b"\0")
        growth = 1.0 if max(map(len, texts)) <= ADDED else math.inf
    return growth * math.prod(_growth(value) for name, value in step.items() if name not in TABLES)


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
    raise ArtefactError(f"settings and weights disagree: {promised}", file=path, remedy="save it again")


def _settings(path: Path, largest: int) -> dict[str, Any]:
    """A JSON file of settings, of at most so many bytes."""
    problem, remedy = "not a readable JSON file: {reason}", "save the model again"
    with failing_as((OSError, ValueError, RecursionError), problem, error=ArtefactError, file=path, remedy=remedy):
        if path.stat().st_size > largest:
            raise ValueError(f"it is larger than {largest >> 20} MiB")
        body = json.loads(path.read_text(encoding="utf-8"), parse_constant=_constant)
        if not isinstance(body, dict):
            raise ValueError("not a JSON object")
        return body


def _constant(name: str) -> float:
    """A number that JSON does not have; some models limit times by infinity."""
    if name == "NaN":
        raise ValueError("a setting is not a number")
    return float(name)


# ---- chat templates -----------------------------------------------------------------------------------------------


#: Of a bundle, the texts around a user's message, and their characters at most.
TURNS, LONGEST_TURN = "turns.json", 10_000
#: The turns of ChatML, and what its templates have: SmolLM2's, Qwen's and others'.
CHATML = ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n")
CHATML_TEMPLATE = re.compile(
    r"""['"]<\|im_start\|>['"]\s*\+\s*message(?:\['role'\]|\.role)\s*\+\s*['"](?:\\n|\n)['"]"""
    r""".*add_generation_prompt\s*-?%}\s*{{-?\s*['"]<\|im_start\|>assistant(?:\\n|\n)['"]\s*-?}}"""
    r"""\s*{%-?\s*(?:endif|if enable_thinking is defined and enable_thinking is false)\b""",
    re.DOTALL,
)


def save_turns(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write what stands around a user's message beside the template, which is not run where a bundle is loaded."""
    from jinja2 import TemplateError

    if tokenizer.chat_template is not None:
        with suppress(TemplateError):  # a prompt that uses it would have failed before
            write_json(folder / TURNS, turns(tokenizer))


def seal_turns(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Replace the chat template of a bundle, a program, by one that only repeats the texts around a message.

    Bundles of earlier versions do not have these texts: the template is compared with what is known of ChatML.
    """
    template = tokenizer.chat_template
    if template is None:
        return
    if (folder / TURNS).is_file():
        around = json.loads((folder / TURNS).read_text(encoding="utf-8"))
    elif isinstance(template, str) and CHATML_TEMPLATE.search(template) and "bos_token" not in template:
        around = CHATML
    else:
        tokenizer.chat_template = "{{ raise_exception('the bundle does not say what stands around a message') }}"
        return
    before, after = around
    if not all(isinstance(text, str) and len(text) <= LONGEST_TURN for text in around):
        problem = f"the turns are no texts of up to {LONGEST_TURN:,} characters"
        raise ArtefactError(problem, file=folder / TURNS, remedy="save the model again")
    tokenizer.chat_template = f"{{{{ {before!a} + messages[-1]['content'] + {after!a} }}}}"
