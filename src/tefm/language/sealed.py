"""What the language model of a bundle may consist of: data that `transformers` reads, and nothing that it runs.

A Hugging Face folder can name Python code of its own (`auto_map`), weights that are pickles, an adapter or a
quantiser from elsewhere. A bundle that was saved by `tefm` has none of these, so one that has them is refused.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tefm.base.errors import ArtefactError

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
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_dir() and not path.name.startswith(".") and not ALLOWED.fullmatch(name):
            raise ArtefactError(
                "the language model of a bundle has no such file: only safetensors weights, settings and a tokenizer",
                file=path,
                remedy="use a bundle that `tefm fit` or `save` wrote",
            )
    for name in ("config.json", "tokenizer_config.json", "generation_config.json"):
        if (folder / name).is_file():
            _check_settings(folder / name)


def _check_settings(path: Path) -> None:
    body = settings_of(path)
    found = next((name for name in FOREIGN if body.get(name) is not None), None)
    if found is not None:
        raise ArtefactError(
            f"the setting {found!r} would load code or files from elsewhere",
            file=path,
            remedy="use a bundle that `tefm fit` or `save` wrote",
        )
    if path.name == "config.json":
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
    if not isinstance(layers, int) or isinstance(layers, bool) or not 1 <= layers == len(blocks) == max(blocks) + 1:
        raise ArtefactError(
            f"the settings promise {layers!r} layers, the weights have {len(blocks)}", file=path, remedy="save it again"
        )
    vocabulary, width = config.get("vocab_size"), config.get("hidden_size", config.get("n_embd"))
    if not any(shape == [vocabulary, width] for shape in rows.values()):
        raise ArtefactError(
            f"the settings promise {vocabulary!r} tokens of {width!r} numbers, the weights have {list(rows.values())}",
            file=path,
            remedy="save it again",
        )


def settings_of(path: Path) -> dict[str, Any]:
    """A JSON file of settings."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ArtefactError(f"not a readable JSON file: {error}", file=path, remedy="save the model again") from error
    if not isinstance(body, dict):
        raise ArtefactError("not a JSON object", file=path, remedy="save the model again")
    return body
