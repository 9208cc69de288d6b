"""Bundles that are small and want all memory or all time, or that hold what no fit leaves: an `ArtefactError` each."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import stays
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from tefm.base.errors import ArtefactError
from tefm.base.files import MANIFEST, write_manifest
from tefm.language.prompts import Prompt
from tefm.language.sealed import CHATML, TURNS
from tefm.model.bundle import KIND, domains_of
from tefm.model.estimator import TEFM

#: A whole bundle of an earlier version.
GOLDEN = Path(__file__).parents[1] / "golden" / "bundle"
TEMPLATE = "language/chat_template.jinja"
#: Templates that take 6 GB, or for ever, where they are run.
MULTIPLIES = "{{ 'x' * 6000000000 }}{{ messages[0]['content'] }}"
LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{{ messages[0]['content'] }}"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN, tmp_path / "model"))


def reseal(folder: Path) -> None:
    facts = json.loads((folder / MANIFEST).read_text())
    write_manifest(folder, KIND, versions=facts["versions"], codes=facts["codes"])


def edit(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        body = json.loads((folder / name).read_text())
        change(body)
        (folder / name).write_text(json.dumps(body))

    return forge


def normaliser(*steps: dict[str, Any]) -> Callable[[Path], None]:
    return edit(
        "language/tokenizer.json", lambda body: body.update(normalizer={"type": "Sequence", "normalizers": steps})
    )


def arrays(name: str, array: str, value: float) -> Callable[[Path], None]:
    """Put a value into the first cell of an array."""

    def forge(folder: Path) -> None:
        with safe_open(folder / name, framework="np") as file:
            metadata = file.metadata()
        state = load_file(folder / name)
        state[array].reshape(-1)[0] = value
        save_file(state, folder / name, metadata=metadata)

    return forge


def deep_tree(body: dict[str, Any]) -> None:
    """A tree whose only way is as long as the tree."""
    inner = 3_000
    nodes, leaves = 2 * inner + 1, [-1] * (inner + 1)
    left, right = [*range(1, inner + 1), *leaves], [*range(inner + 1, nodes), *leaves]
    body["trees"][0].update(roots=[0], feature=[0] * inner + leaves, among=[], left=left, right=right)
    body["trees"][0].update(threshold=[0.0] * nodes, value=[0.0] * nodes)


def chatting(text: str) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        edit("model.json", lambda body: body["prompt"].update(chat=True))(folder)
        (folder / TEMPLATE).write_text(text)

    return forge


LONG = "word " * 1_200_000
BOMBS: dict[str, Callable[[Path], None]] = {
    "a normaliser that grows text": normaliser(
        *[{"type": "Replace", "pattern": {"Regex": "."}, "content": "a" * 50}] * 6
    ),
    "a normaliser that doubles text": normaliser(
        *[{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 64
    ),
    "a normaliser that adds text": normaliser({"type": "Prepend", "prepend": LONG}),
    "a long message": edit("model.json", lambda body: body["prompt"].update(message=LONG + "{records}")),
    "long answers": edit("model.json", lambda body: body["prompt"].update(answers={"no": "no", "yes": LONG})),
    "long classes": edit("model.json", lambda body: body.update(classes=["no", LONG])),
    "classes without end": edit("model.json", lambda body: body.update(classes=[str(n) for n in range(99_999)])),
    "a long question": edit("questions.json", lambda body: body["entries"][0]["question"].update(text=LONG)),
    "a template that multiplies": chatting(MULTIPLIES),
    "a template that loops": chatting(LOOPS),
    "wide trees": edit("trees.json", lambda body: body.update(kind="flat", width=9 * 144_000_000)),
    "deep trees": edit("trees.json", deep_tree),
    "a setting that is no number": edit("language/config.json", lambda body: body.update(rms_norm_eps=float("nan"))),
    "weights that are no numbers": arrays("language/model.safetensors", "model.norm.weight", np.nan),
    "a surrogate that is no number": arrays("look_alikes.safetensors", "surrogate.mean_d", np.inf),
    "improbable look-alikes": arrays("look_alikes.safetensors", "population.p_SQ", 7.0),
    "a reference that is no number": arrays("reference.safetensors", "whole.p_SQ", np.nan),
    "a reference of other classes": arrays("reference.safetensors", "whole.label_S", 9),
    "a reference below zero": arrays("reference.safetensors", "whole.counts", -5),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_refused(bomb: str, copy: Path) -> None:
    BOMBS[bomb](copy)
    reseal(copy)
    with pytest.raises(ArtefactError) as caught:
        TEFM.load(copy, device="cpu")
    assert str(copy) in str(caught.value) and caught.value.remedy
    assert len(str(caught.value)) < 2_000


def test_a_manifest_without_an_end_is_refused(copy: Path) -> None:
    text = (copy / MANIFEST).read_text()
    (copy / MANIFEST).write_text('{"deep": ' + "[" * 200_000 + "]" * 200_000 + "," + text.strip()[1:])
    assert domains_of(copy) is None
    with pytest.raises(ArtefactError, match="manifest is damaged"):
        TEFM.load(copy, device="cpu")


# ---- chat templates ----------------------------------------------------------------------------------------------


def test_a_template_that_no_prompt_uses_is_not_run(copy: Path) -> None:
    (copy / TEMPLATE).write_text(LOOPS)
    reseal(copy)
    assert len(TEFM.load(copy, device="cpu").predict_table(stays(5))) == 5


def test_the_turns_of_an_earlier_bundle_are_those_of_its_template(copy: Path) -> None:
    edit("model.json", lambda body: body["prompt"].update(chat=True))(copy)
    reseal(copy)
    writer = TEFM.load(copy, device="cpu").fitted.classifier.writer
    assert (writer.opening, writer.closing) == CHATML


def test_a_saved_model_knows_its_turns(backbones: dict[str, Path], tmp_path: Path) -> None:
    """Also those of a template that is not known; and a model that was loaded is saved with the same ones."""
    from tefm.language.backbone import open_backbone, turns
    from tefm.language.sealed import save_turns, seal_turns

    tokenizer = open_backbone(backbones["llama"], device="cpu").tokenizer
    tokenizer.chat_template = "{% for m in messages %}[{{ m.role }}] '{{ m.content }}\"\n{% endfor %}🙂 {{ '{#' }}"
    expected = turns(tokenizer)
    assert expected == ("[user] '", '"\n🙂 {#')
    save_turns(tokenizer, tmp_path)
    assert json.loads((tmp_path / TURNS).read_text()) == [*expected]
    for _ in range(2):
        seal_turns(tokenizer, tmp_path)
        assert turns(tokenizer) == expected
        save_turns(tokenizer, tmp_path)
    (tmp_path / TURNS).write_text(json.dumps(["x" * 10**6, ""]))
    with pytest.raises(ArtefactError, match="turns"):
        seal_turns(tokenizer, tmp_path)


def test_a_long_message_of_a_user_is_refused_in_short_words() -> None:
    with pytest.raises(ValueError, match="message") as caught:
        Prompt.checked({"message": LONG + "{records}"})
    assert len(str(caught.value)) < 2_000
