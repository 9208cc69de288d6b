"""Atomic writes, and manifests that show whether a folder is complete and unchanged.

A file or folder is written under a temporary name next to its destination, then renamed. Other processes see either
the old state or the new one, never half of it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from tefm.base.errors import ArtefactError, InputError, MissingExtraError, TefmError
from tefm.base.targets import explained_writing, make_folder, remove_left_over, temporary_name

MANIFEST = "manifest.json"


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path to write to; it replaces `path` when the block ends without an error."""
    path = Path(path)
    make_folder(path.parent)
    remove_left_over(path)
    temporary = temporary_name(path)
    try:
        with explained_writing(path):
            yield temporary
            if path.is_dir() and not temporary.is_dir():
                raise InputError("cannot write the file: the path is a folder", file=path, remedy="give a file name")
            temporary.replace(path)
    finally:
        if temporary.is_file():
            temporary.unlink()


def write_text(path: str | Path, text: str) -> Path:
    """Write a text file atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def write_json(path: str | Path, body: Any) -> Path:
    """Write a JSON file atomically."""
    return write_text(path, json.dumps(body, indent=1, ensure_ascii=False) + "\n")


@contextmanager
def replacing_folder(path: str | Path, *, ours: Callable[[Path], bool]) -> Iterator[Path]:
    """A temporary folder to fill; it replaces `path` when the block ends without an error.

    An existing folder is replaced only if `ours` recognises it, so that no other files are lost.
    """
    path = Path(path)
    make_folder(path.parent)
    remove_left_over(path)
    check_replaceable(path, ours)
    temporary = temporary_name(path)
    aside = temporary.with_suffix(".old")
    try:
        with explained_writing(path):
            temporary.mkdir()
            yield temporary
            if path.exists():  # moved before it is deleted: deleting takes time, and may be interrupted
                path.replace(aside)
            temporary.replace(path)
    finally:
        if aside.exists() and not path.exists():
            aside.replace(path)
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(aside, ignore_errors=True)


def check_replaceable(path: Path, ours: Callable[[Path], bool]) -> None:
    """Refuse a path with contents that `ours` does not recognise; call this before a long computation."""
    if path.exists() and not (path.is_dir() and (not any(path.iterdir()) or ours(path))):
        raise InputError(
            "the path exists and was not written by tefm",
            file=path,
            remedy="give a new folder, or move the existing one",
        )


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path, kind: str, **facts: Any) -> None:
    """Write the manifest of a folder: its kind, facts about it, and a hash of every file in it."""
    parts = {
        path.relative_to(folder).as_posix(): sha256(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path != folder / MANIFEST
    }
    write_json(folder / MANIFEST, {"kind": kind, **facts, "parts": parts})


def read_manifest(folder: str | Path, kind: str, *, only: Collection[str] | None = None) -> dict[str, Any]:
    """Check that `folder` is a complete and unchanged `kind`, and return its manifest.

    `only` these files are checked: hashing the weights of a language model takes seconds.
    """
    folder = Path(folder)
    path = folder / MANIFEST
    if not folder.is_dir() or not path.is_file():
        raise ArtefactError(
            f"not a saved {kind}: there is no {MANIFEST}", file=folder, remedy="give the folder that `save` wrote"
        )
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        actual, parts = manifest["kind"], dict(manifest["parts"])
        if not parts or not all(isinstance(text, str) for pair in parts.items() for text in pair):
            raise ValueError("it lists no parts")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArtefactError(f"the manifest is damaged: {error}", file=path, remedy="save the folder again") from error
    if actual != kind:
        raise ArtefactError(
            f"the folder is a saved {actual}, not a {kind}", file=folder, remedy=f"give the folder of a {kind}"
        )
    _refuse_unlisted(folder, parts)
    for name, digest in parts.items():
        part = folder / name
        if not part.is_file():
            raise ArtefactError("a file is missing", file=part, remedy="copy the whole folder, or save it again")
        if only is not None and name not in only:
            continue
        if sha256(part) != digest:
            raise ArtefactError(
                "the file was changed or damaged after it was saved (its hash differs)",
                file=part,
                remedy="copy the folder again, or save it again",
            )
    return manifest


def _refuse_unlisted(folder: Path, parts: Collection[str]) -> None:
    """Refuse files that nobody has sealed: links, names that leave the folder, and files that are not listed.

    Hidden files (`.gitattributes`, `.DS_Store`) are not listed, and nothing reads them.
    """
    for name in parts:
        listed = PurePosixPath(name)
        if listed.is_absolute() or ".." in listed.parts or "\\" in name or listed.as_posix() != name:
            raise ArtefactError(
                "the manifest lists a file outside the folder",
                file=folder / MANIFEST,
                value=name,
                remedy="use a folder that tefm wrote",
            )
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        if path.is_symlink():
            raise ArtefactError(
                "the folder has a link in place of a file", file=path, remedy="copy the files themselves (`cp -rL`)"
            )
        if not path.is_dir() and name != MANIFEST and name not in parts:
            raise ArtefactError(
                "the manifest does not list this file", file=path, remedy="move it out of the folder, or save it again"
            )


@contextmanager
def refusing(folder: Path, what: str) -> Iterator[None]:
    """Whatever fails while a sealed folder is read is a fault of the folder: libraries raise all kinds of errors."""
    try:
        yield
    except (ArtefactError, MissingExtraError):
        raise
    except TefmError as error:
        raise ArtefactError(
            f"this {what} cannot be loaded: {error.problem}",
            file=error.file or folder,
            value=error.value,
            remedy=error.remedy or "save it again",
        ) from error
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ArtefactError(
            f"this {what} cannot be loaded: {reason}", file=folder, remedy="copy the folder again, or save it again"
        ) from error


def is_whole(folder: Path, kind: str) -> bool:
    """Whether `folder` is a complete and unchanged `kind`."""
    try:
        read_manifest(folder, kind)
    except ArtefactError:
        return False
    return True
