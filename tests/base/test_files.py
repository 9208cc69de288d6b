"""Files and folders are replaced completely or not at all, and a manifest shows whether a folder is complete."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Explained

from tefm.base.errors import ArtefactError, InputError
from tefm.base.files import MANIFEST, read_manifest, replacing, write_json, write_manifest, write_text


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def always(_: Path) -> bool:
    return True


# ---- files ----------------------------------------------------------------------------------------------------------


def test_a_text_file_is_written_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "note.txt"
    assert write_text(path, "first: Zoë") == path
    write_text(str(path), "second")
    assert path.read_text(encoding="utf-8") == "second"
    assert names(path.parent) == ["note.txt"]


def test_json_keeps_letters_readable(tmp_path: Path) -> None:
    write_json(tmp_path / "body.json", {"name": "Zoë", "values": [1, None]})
    text = (tmp_path / "body.json").read_text(encoding="utf-8")
    assert "Zoë" in text
    assert json.loads(text) == {"name": "Zoë", "values": [1, None]}


def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = write_text(tmp_path / "note.txt", "old")
    with pytest.raises(RuntimeError, match="power cut"), replacing(path) as temporary:
        temporary.write_text("half of the n")
        raise RuntimeError("power cut")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["note.txt"]


def test_the_old_file_is_there_until_the_writer_is_done(tmp_path: Path) -> None:
    path = write_text(tmp_path / "note.txt", "old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_a_file_does_not_replace_a_folder(tmp_path: Path, explained: Explained) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "kept.txt").write_text("kept")
    explained(InputError, lambda: write_text(tmp_path / "place", "text"), tmp_path / "place", "folder")
    assert names(tmp_path) == ["place"]
    assert names(tmp_path / "place") == ["kept.txt"]


def test_a_path_below_a_file_is_refused(tmp_path: Path, explained: Explained) -> None:
    (tmp_path / "file").write_text("x")
    explained(InputError, lambda: write_text(tmp_path / "file" / "note.txt", "text"), tmp_path / "file")

    def fill() -> None:
        with replacing(tmp_path / "file" / "folder", ours=always):
            pass

    explained(InputError, fill, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "x"


# ---- folders --------------------------------------------------------------------------------------------------------


def test_a_folder_is_made_and_replaced_whole(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "model"
    for content in ("first", "second"):
        with replacing(place, ours=always) as temporary:
            (temporary / f"{content}.txt").write_text(content)
            assert not (place / f"{content}.txt").exists()
        assert names(place) == [f"{content}.txt"]
    assert names(tmp_path / "deep") == ["model"]
    assert place.stat().st_mode & 0o777 == 0o755  # a temporary folder would be closed to everybody else


def test_a_failure_leaves_the_old_folder_and_nothing_else(tmp_path: Path) -> None:
    place = tmp_path / "model"
    with replacing(place, ours=always) as temporary:
        (temporary / "part.txt").write_text("old")
    with pytest.raises(RuntimeError), replacing(place, ours=always) as temporary:
        (temporary / "part.txt").write_text("new")
        raise RuntimeError
    assert (place / "part.txt").read_text() == "old"
    assert names(tmp_path) == ["model"]


def test_the_old_folder_comes_back_when_the_last_step_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "model"
    place.mkdir()
    (place / "part.txt").write_text("old")
    replace = Path.replace

    def stuck(path: Path, target: Path) -> Path:
        if path.suffix == ".tmp":
            raise OSError("no space left")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", stuck)
    with pytest.raises(InputError, match="no space"), replacing(place, ours=always) as temporary:
        (temporary / "part.txt").write_text("new")
    assert (place / "part.txt").read_text() == "old"
    assert names(tmp_path) == ["model"]


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with replacing(tmp_path / "empty", ours=lambda _: False) as temporary:
        (temporary / "part.txt").write_text("new")
    assert names(tmp_path / "empty") == ["part.txt"]


@pytest.mark.parametrize("taken", ["folder", "file"])
def test_a_path_not_written_by_tefm_is_never_replaced(taken: str, tmp_path: Path, explained: Explained) -> None:
    place = tmp_path / "thesis"
    if taken == "folder":
        place.mkdir()
        (place / "chapter1.txt").write_text("years of work")
    else:
        place.write_text("years of work")

    def fill() -> None:
        with replacing(place, ours=lambda folder: (folder / MANIFEST).exists()):
            raise AssertionError("nothing may be written")

    explained(InputError, fill, place, "not written by tefm")
    assert (place / "chapter1.txt" if taken == "folder" else place).read_text() == "years of work"
    assert names(tmp_path) == ["thesis"]


# ---- manifests ------------------------------------------------------------------------------------------------------


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "inner").mkdir(parents=True)
    (folder / "weights.bin").write_bytes(b"\x00\x01")
    (folder / "inner" / MANIFEST).write_text("{}")  # a part that is itself a sealed folder
    write_manifest(folder, "toy model", version="1.2")
    return folder


def test_a_whole_folder_gives_its_manifest(sealed: Path) -> None:
    manifest = read_manifest(sealed, "toy model")
    assert manifest["version"] == "1.2"
    assert set(manifest["parts"]) == {"weights.bin", f"inner/{MANIFEST}"}


@pytest.mark.parametrize("part", ["weights.bin", f"inner/{MANIFEST}"])
def test_a_changed_part_is_named(part: str, sealed: Path, explained: Explained) -> None:
    (sealed / part).write_bytes(b"\x00\x02")
    explained(ArtefactError, lambda: read_manifest(sealed, "toy model"), sealed / part, "changed or damaged")


def test_a_missing_part_is_named(sealed: Path, explained: Explained) -> None:
    (sealed / "weights.bin").unlink()
    explained(ArtefactError, lambda: read_manifest(sealed, "toy model"), sealed / "weights.bin", "missing")


def test_a_folder_of_another_kind_says_what_it_is(sealed: Path, explained: Explained) -> None:
    explained(ArtefactError, lambda: read_manifest(sealed, "real model"), sealed, "toy model", "real model")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"kind": "toy model"}', '{"kind": "toy model", "parts": 3}', "\udcff"]
)
def test_a_damaged_manifest_is_named(text: str, sealed: Path, explained: Explained) -> None:
    (sealed / MANIFEST).write_bytes(text.encode(errors="surrogateescape"))
    explained(ArtefactError, lambda: read_manifest(sealed, "toy model"), sealed / MANIFEST, "damaged")


@pytest.mark.parametrize("place", ["nowhere", "empty", "file.txt"])
def test_a_path_without_a_manifest_is_not_a_saved_model(place: str, tmp_path: Path, explained: Explained) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("x")
    explained(ArtefactError, lambda: read_manifest(tmp_path / place, "toy model"), tmp_path / place, MANIFEST)
