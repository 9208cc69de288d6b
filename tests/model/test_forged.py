"""Bundles from strangers: 60 damaged ones, and forged ones whose manifest is right. Every one is an `ArtefactError`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tefm.base.errors import ArtefactError
from tefm.base.files import MANIFEST, write_manifest
from tefm.codes.tokenizer import KIND as TOKENIZER
from tefm.model.bundle import KIND, load_preparation
from tefm.model.estimator import TEFM

DAMAGED = 60
#: What would run if a bundle could run code.
CODE = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
AUTO_MAP = {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil", "AutoTokenizer": ["evil.Evil", None]}


@pytest.fixture(scope="module")
def saved(fitted: TEFM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fitted.save(tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "model"))


def refused(folder: Path) -> str:
    """Loading ends in an `ArtefactError` that names a file of the folder, and nothing in it has run."""
    with pytest.raises(ArtefactError) as caught:
        load_preparation(folder)
        TEFM.load(folder, device="cpu")
    assert str(folder) in str(caught.value)
    assert caught.value.remedy
    assert not list(folder.rglob("ran"))
    return str(caught.value)


def test_the_bundle_itself_is_fine(copy: Path) -> None:
    reseal(copy)
    assert load_preparation(copy).schema.label == "died"
    TEFM.load(copy, device="cpu")


# ---- damaged: the manifest is the old one -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(DAMAGED))
def test_a_damaged_bundle_is_refused(seed: int, copy: Path) -> None:
    rng = np.random.default_rng(seed)
    paths = sorted(path for path in copy.rglob("*") if path.is_file() and path.name != "README.md")
    path = paths[int(rng.integers(len(paths)))]
    content = bytearray(path.read_bytes())
    match seed % 4:
        case 0:
            path.unlink()
        case 1:
            path.write_bytes(content[: int(rng.integers(len(content)))])
        case 2:
            content[int(rng.integers(len(content)))] ^= int(rng.integers(1, 256))
            path.write_bytes(content)
        case _:
            path.write_bytes(rng.bytes(len(content)))
    try:  # a flipped bit in the versions that a manifest mentions is no damage to the model
        refused(copy)
    except (AssertionError, pytest.fail.Exception):
        assert path.name == MANIFEST
        assert seed % 4 == 2


# ---- forged: the manifest is written again ------------------------------------------------------------------------


def reseal(folder: Path) -> None:
    inner = folder / "tokenizer"
    facts = json.loads((inner / MANIFEST).read_text())
    write_manifest(inner, TOKENIZER, version=facts["version"], identity=facts["identity"])
    facts = json.loads((folder / MANIFEST).read_text())
    write_manifest(folder, KIND, versions=facts["versions"], codes=facts["codes"])


def edit(name: str, **changes: Any) -> Callable[[Path], None]:
    """Change keys of a JSON file; `a__b` is the key b of the object a, None removes nothing."""

    def forge(folder: Path) -> None:
        body = json.loads((folder / name).read_text())
        for keys, value in changes.items():
            *path, last = keys.split("__")
            target = body
            for key in path:
                target = target[key]
            target[last] = value(target[last]) if callable(value) else value
        (folder / name).write_text(json.dumps(body))

    return forge


def config(**changes: Any) -> Callable[[Path], None]:
    return edit("language/config.json", **changes)


def add(name: str, content: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(content) and None


def tensors(name: str, change: Callable[[dict[str, torch.Tensor]], None], **facts: Any) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        with safe_open(folder / name, framework="pt") as file:
            metadata = dict(file.metadata() or {})
        if facts:
            body = json.loads(metadata["facts"])
            body["config"].update(facts)
            metadata["facts"] = json.dumps(body)
        state = load_file(folder / name)
        change(state)
        save_file({key: value.contiguous() for key, value in state.items()}, folder / name, metadata=metadata)

    return forge


def pickled(folder: Path) -> None:
    weights = folder / "language" / "model.safetensors"
    torch.save(load_file(weights), folder / "language" / "pytorch_model.bin")
    weights.unlink()


def without_codes(folder: Path) -> None:
    path = folder / "language" / "tokenizer.json"
    body = json.loads(path.read_text())
    body["added_tokens"] = [token for token in body["added_tokens"] if "_a_" not in token["content"]]
    path.write_text(json.dumps(body))


def code(**changes: Any) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        config(**changes)(folder)
        (folder / "language" / "evil.py").write_text(CODE)

    return forge


def nothing(_: dict[str, torch.Tensor]) -> None:
    """The tensors as they are."""


def third_class(state: dict[str, torch.Tensor]) -> None:
    p_SQ = state["population.p_SQ"]
    state["population.p_SQ"] = torch.cat([p_SQ, p_SQ[:, :1]], dim=1)


FORGED: dict[str, Callable[[Path], None]] = {
    "code of an unknown model": code(model_type="evil", auto_map=AUTO_MAP),
    "code of a known model": code(auto_map=AUTO_MAP),
    "code without a setting": add("language/evil.py", CODE),
    "code of a tokenizer": edit("language/tokenizer_config.json", auto_map=AUTO_MAP),
    "code in the tokenizer": lambda folder: edit(
        "language/tokenizer_config.json", tokenizer_class="Evil", auto_map=AUTO_MAP
    )(folder),
    "pickled weights": pickled,
    "an adapter": add("language/adapter_config.json", '{"base_model_name_or_path": "evil/evil", "peft_type": "LORA"}'),
    "a quantiser": config(quantization_config={"quant_method": "evil"}),
    "a kernel": config(attn_implementation="evil/kernel"),
    "a vocabulary elsewhere": edit("language/tokenizer_config.json", tokenizer_file="/etc/passwd"),
    "an unknown model": config(model_type="evil"),
    "no causal model": config(architectures=["BertModel"]),
    "-1 layers": config(num_hidden_layers=-1),
    "0 layers": config(num_hidden_layers=0),
    "fewer layers": config(num_hidden_layers=2),
    "a billion layers": config(num_hidden_layers=10**9),
    "layers in words": config(num_hidden_layers="three"),
    "a larger vocabulary": config(vocab_size=10**9),
    "a smaller vocabulary": config(vocab_size=17),
    "a wider model": config(hidden_size=10**7),
    "wider blocks": config(intermediate_size=10**6),
    "other heads": config(num_attention_heads=3),
    "no tokens for codes": without_codes,
    "no tokenizer": lambda folder: (folder / "language" / "tokenizer.json").unlink(),
    "three classes": edit("model.json", classes=["no", "yes", "perhaps"]),
    "one class": edit("model.json", classes=["no"]),
    "the same class twice": edit("model.json", classes=["no", "no"]),
    "classes that are numbers": edit("model.json", classes=[1, 2]),
    "a positive class that is not there": edit("model.json", positive=7),
    "three shares": edit("model.json", shares=[0.2, 0.3, 0.5]),
    "a bias of three classes": edit("model.json", calibration__bias=[0.0, 1.0, 2.0]),
    "a bias that is no number": edit("model.json", calibration__bias=[0.0, float("nan")]),
    "no temperature": edit("model.json", calibration__temperature=0),
    "a temperature in words": edit("model.json", calibration__temperature="hot"),
    "a prompt that fills the memory": edit("model.json", prompt__message="{records} {count:>999999999}"),
    "a prompt that reads attributes": edit("model.json", prompt__message="{records.__class__}"),
    "an answer of no class": edit("model.json", prompt__answers={"perhaps": "Perhaps."}),
    "other levels": edit("model.json", ids__levels=3),
    "other entries": edit("model.json", ids__entries=9),
    "tokens before the vocabulary": edit("model.json", ids__first=-1),
    "tokens behind the vocabulary": edit("model.json", ids__first=10**9),
    "another tokenizer": edit("model.json", codes="0123456789abcdef"),
    "no schema": edit("model.json", schema=7),
    "another record": edit("model.json", schema__record="flow"),
    "an unknown setting": edit("model.json", config__speed=9),
    "settings without an end": add("model.json", "[" * 100_000),
    "settings that are a list": add("model.json", "[]"),
    "a tokenizer of other levels": edit("tokenizer/config.json", levels=3),
    "a tokenizer of other entries": edit("tokenizer/config.json", entries=9),
    "a tokenizer of a billion": edit("tokenizer/config.json", hidden=10**9),
    "a tokenizer without a width": edit("tokenizer/config.json", hidden=None),
    "a tokenizer of many blocks": edit("tokenizer/config.json", blocks=10**9),
    "a slot of many values": lambda folder: _layout(folder, 10**12),
    "a slot of no values": lambda folder: _layout(folder, 0),
    "fewer modes": edit("tokenizer/learned.json", mode=[1]),
    "codes of other classes": edit("tokenizer/learned.json", classes=["x", "y"]),
    "codes that are no numbers": tensors(
        "tokenizer/network.safetensors", lambda state: state["encoder.0.bias"].fill_(torch.nan)
    ),
    "look-alikes of three classes": tensors("look_alikes.safetensors", third_class),
    "look-alikes without an end": tensors("look_alikes.safetensors", lambda s: s["population.starts"].fill_(3)),
    "look-alikes of other slots": tensors("look_alikes.safetensors", lambda s: s["population.x_ND"].fill_(255)),
    "a wide surrogate": tensors("look_alikes.safetensors", nothing, surrogate_hidden=10**6),
    "wide masks": tensors("rationale.safetensors", nothing, surrogate_hidden=10**6),
    "no masks": add("rationale.safetensors", "nothing"),
}  # fmt: skip


def _layout(folder: Path, size: int) -> None:
    path = folder / "tokenizer" / "layout.json"
    body = json.loads(path.read_text())
    body[0][2] = size
    path.write_text(json.dumps(body))


def test_there_are_at_least_40_forgeries() -> None:
    assert len(FORGED) >= 40


@pytest.mark.slow
@pytest.mark.parametrize("forgery", FORGED)
def test_a_forged_bundle_is_refused(forgery: str, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> str:
        raise SystemExit("a bundle must not ask questions")

    monkeypatch.setattr("builtins.input", asked)
    FORGED[forgery](copy)
    reseal(copy)
    refused(copy)


# ---- the manifest itself ------------------------------------------------------------------------------------------


def test_an_empty_list_of_parts_checks_nothing_and_is_refused(copy: Path) -> None:
    edit(MANIFEST, parts={})(copy)
    assert "damaged" in refused(copy)


def test_a_part_that_is_not_listed_is_refused(copy: Path) -> None:
    edit(MANIFEST, parts=lambda parts: {name: of for name, of in parts.items() if not name.startswith("language/")})(
        copy
    )
    assert "does not list" in refused(copy)


@pytest.mark.parametrize("name", ["../outside.json", "/etc/hostname", "a/../../outside.json", "..\\outside.json"])
def test_a_part_outside_the_folder_is_refused(name: str, copy: Path) -> None:
    (copy.parent / "outside.json").write_text("{}")
    edit(MANIFEST, parts=lambda parts: {**parts, name: "0" * 64})(copy)
    assert "outside the folder" in refused(copy)


def test_a_link_is_refused(copy: Path) -> None:
    (copy / "model.json").rename(copy.parent / "elsewhere.json")
    (copy / "model.json").symlink_to(copy.parent / "elsewhere.json")
    assert "link" in refused(copy)


def test_a_linked_folder_is_refused(copy: Path) -> None:
    (copy / "language").rename(copy.parent / "elsewhere")
    (copy / "language").symlink_to(copy.parent / "elsewhere")
    assert "link" in refused(copy)


def test_hidden_files_do_no_harm(copy: Path) -> None:
    (copy / ".gitattributes").write_text("* text\n")
    TEFM.load(copy, device="cpu")


def test_backbones_with_code_are_refused(backbones: dict[str, Path], tmp_path: Path, explained: Any) -> None:
    from tefm.base.errors import InputError
    from tefm.language.backbone import open_backbone

    folder = Path(shutil.copytree(backbones["llama"], tmp_path / "evil"))
    body = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**body, "model_type": "evil", "auto_map": AUTO_MAP}))
    (folder / "evil.py").write_text(CODE)
    explained(InputError, lambda: open_backbone(folder, device="cpu"), str(folder))
    assert not (folder / "ran").exists()
