"""Atomic writes, and manifests that show whether a folder is complete and unchanged.

A file or folder is written under a temporary name next to its destination, then renamed. Other processes see either
the old state or the new one, never half of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tefm.base.errors import ArtefactError, InputError

MANIFEST = "manifest.json"


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path to write to; it replaces `path` when the block ends without an error."""
    path = Path(path)
    _make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
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
    check_replaceable(path, ours)
    _make_folder(path.parent)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    aside = temporary.with_suffix(".old")
    try:
        yield temporary
        temporary.chmod(0o755)
        if path.exists():  # moved before it is deleted: deleting takes time, and may be interrupted
            path.replace(aside)
        temporary.replace(path)
    finally:
        if aside.exists() and not path.exists():
            aside.replace(path)
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(aside, ignore_errors=True)


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot create the folder: {error.strerror}", file=path, remedy="give a path that you can write to"
        ) from error


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
        str(path.relative_to(folder)): sha256(path)
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
    except (ValueError, KeyError, TypeError) as error:
        raise ArtefactError("the manifest is damaged", file=path, remedy="save the folder again") from error
    if actual != kind:
        raise ArtefactError(
            f"the folder is a saved {actual}, not a {kind}", file=folder, remedy=f"give the folder of a {kind}"
        )
    for name, digest in parts.items():
        if only is not None and name not in only:
            continue
        part = folder / name
        if not part.is_file():
            raise ArtefactError("a file is missing", file=part, remedy="copy the whole folder, or save it again")
        if sha256(part) != digest:
            raise ArtefactError(
                "the file was changed or damaged after it was saved (its hash differs)",
                file=part,
                remedy="copy the folder again, or save it again",
            )
    return manifest


def is_whole(folder: Path, kind: str) -> bool:
    """Whether `folder` is a complete and unchanged `kind`."""
    try:
        read_manifest(folder, kind)
    except ArtefactError:
        return False
    return True
