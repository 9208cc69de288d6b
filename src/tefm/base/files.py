"""Where results go: checked before the work starts, written atomically by one process at a time, sealed by a manifest.

A file or folder is written under a temporary name next to its destination, then renamed. Other processes see either
the old state or the new one, never half of it. The name holds the machine and the process, so that the next run can
tell what a killed one has left behind from what another one is writing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np

from tefm.base.errors import ArtefactError, InputError, MissingExtraError, TefmError, first_line

MANIFEST = "manifest.json"
#: From this age on, what a process of another machine has left behind is taken for dead: nobody can ask it.
DEAD_AFTER = 7 * 86_400
#: Bytes that are written to find out whether there is room at all.
PROBE = 1 << 16

_HOST = re.sub(r"[^a-z0-9]", "", socket.gethostname().lower())[:24] or "host"
_LEFT = re.compile(r"\.(?P<host>[a-z0-9]+)-(?P<process>\d+)-[0-9a-f]{6}\.(?P<kind>tmp|old)")
#: What an operating system says when it cannot write; libraries repeat it in errors of their own.
_FULL = re.compile(r"no space left|disk quota|read-only file system|file too large|os error (27|28|30|122)\b", re.I)
_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EIO}


def temporary_name(path: Path, kind: str = "tmp") -> Path:
    """A name beside `path` that nobody else uses."""
    return path.with_name(f".{path.name}.{_HOST}-{os.getpid()}-{uuid.uuid4().hex[:6]}.{kind}")


def remove_left_over(path: Path) -> None:
    """Remove what killed runs have left of `path`; a folder that one had moved aside comes back."""
    if not path.parent.is_dir():
        return
    prefix = f".{path.name}"
    for left in sorted(path.parent.iterdir()):
        match = _LEFT.fullmatch(left.name[len(prefix) :]) if left.name.startswith(prefix) else None
        if match is None or not _is_dead(match["host"], int(match["process"]), left):
            continue
        if match["kind"] == "old" and not path.exists():
            left.replace(path)
        elif left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def _is_dead(host: str, process: int, left: Path) -> bool:
    if host != _HOST:
        return time.time() - left.stat().st_mtime > DEAD_AFTER
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


@contextmanager
def explained_writing(path: Path) -> Iterator[None]:
    """A full disk or a folder that cannot be written to is an error that names the target."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        code = error.errno if isinstance(error, OSError) else None
        if code not in _ERRNOS and not _FULL.search(str(error)):
            raise
        reason = os.strerror(code) if code is not None else first_line(error)
        raise _cannot_write(path, reason) from error


def _cannot_write(path: Path, reason: str | None) -> InputError:
    return InputError(f"cannot write: {reason}", file=path, remedy="make room, or give a path that you can write to")


def make_folder(path: Path) -> None:
    """Make a folder and those above it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot create the folder: {error.strerror}", file=path, remedy="give a path that you can write to"
        ) from error


def check_writable(path: Path) -> None:
    """Refuse a target that cannot be written, by writing beside it; call this before a long computation."""
    make_folder(path.parent)
    try:
        temporary_name(path).exists()  # its name may be too long
        with tempfile.TemporaryFile(dir=path.parent) as probe:
            probe.write(bytes(PROBE))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        raise _cannot_write(path, error.strerror) from error


@contextmanager
def replacing(path: str | Path, *, ours: Callable[[Path], bool] | None = None) -> Iterator[Path]:
    """A temporary path to write to; it replaces `path` when the block ends without an error.

    With `ours` it is a folder to fill, and an existing folder is replaced only if `ours` recognises it, so that no
    other files are lost.
    """
    path = Path(path)
    make_folder(path.parent)
    remove_left_over(path)
    if ours is not None:
        check_replaceable(path, ours)
    temporary = temporary_name(path)
    aside = temporary.with_suffix(".old")
    try:
        with explained_writing(path):
            if ours is not None:
                temporary.mkdir()
            yield temporary
            if path.is_dir() and not temporary.is_dir():
                raise InputError("cannot write the file: the path is a folder", file=path, remedy="give a file name")
            if ours is not None and path.exists():  # moved before it is deleted: deleting takes time, may be cut short
                path.replace(aside)
            temporary.replace(path)
    finally:
        if aside.exists() and not path.exists():
            aside.replace(path)
        if temporary.is_file():
            temporary.unlink()
        for folder in (temporary, aside):
            shutil.rmtree(folder, ignore_errors=True)


def write_text(path: str | Path, text: str) -> Path:
    """Write a text file atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def write_json(path: str | Path, body: Any) -> Path:
    """Write a JSON file atomically."""
    return write_text(path, json.dumps(body, indent=1, ensure_ascii=False) + "\n")


def write_tensors(path: Path, tensors: Mapping[str, Any], **facts: Any) -> None:
    """Write torch tensors or numpy arrays, and facts about them for JSON, as one safetensors file."""
    from safetensors import numpy, torch

    arrays = {name: np.ascontiguousarray(of) for name, of in tensors.items() if isinstance(of, np.ndarray)}
    metadata = {"facts": json.dumps(facts)}
    with replacing(path) as temporary:
        if arrays:
            numpy.save_file(arrays, temporary, metadata=metadata)
        else:
            torch.save_file(dict(tensors), temporary, metadata=metadata)


def read_tensors(path: Path, framework: Literal["pt", "numpy"] = "pt") -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors (or arrays) and the facts that `write_tensors` wrote; numbers that are not finite are refused."""
    from safetensors import safe_open

    with safe_open(path, framework=framework) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a mapping
        facts = json.loads(file.metadata()["facts"])
    for name, tensor in tensors.items():
        if not np.isfinite(np.asarray(tensor)).all():
            raise ArtefactError(f"{name} has values that are not finite", file=path, remedy="save it again")
    return tensors, facts


def check_replaceable(path: Path, ours: Callable[[Path], bool]) -> None:
    """Refuse a path with contents that `ours` does not recognise; call this before a long computation."""
    if path.exists() and not (path.is_dir() and (not any(path.iterdir()) or ours(path))):
        raise InputError(
            "the path exists and was not written by tefm",
            file=path,
            remedy="give a new folder, or move the existing one",
        )


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold `path` as long as the block runs; a second process that wants it is refused at once.

    The operating system lets go of it when a process ends, however that happens.
    """
    try:
        import fcntl
    except ImportError:  # pragma: no cover  # Windows
        yield
        return
    make_folder(path.parent)
    name = path.with_name(f".{path.name}.lock")
    with ExitStack() as files:
        while True:
            with explained_writing(path):
                lock = files.enter_context(name.open("a+"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                lock.seek(0)
                holder = lock.read().strip() or "another process"
                raise InputError(
                    f"{holder} is writing to this path right now", file=path, remedy="wait for it, or give another path"
                ) from error
            if name.exists() and os.path.samestat(os.fstat(lock.fileno()), name.stat()):
                break  # otherwise it was removed by the process that held it until now
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}")
        lock.flush()
        remove_left_over(path)
        try:
            yield
        finally:
            name.unlink(missing_ok=True)


# ---- manifests ------------------------------------------------------------------------------------------------------


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

    With `only`, the hashes of the files whose names begin with one of these: those of a language model take seconds.
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
        if (only is None or name.startswith(tuple(only))) and sha256(part) != digest:
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
    """Turn whatever fails while a sealed folder is read into an error about the folder."""
    try:
        yield
    except TefmError as error:
        if isinstance(error, MissingExtraError) or (isinstance(error, ArtefactError) and error.file is not None):
            raise
        raise ArtefactError(
            f"this {what} cannot be loaded: {error.problem}",
            file=error.file or folder,
            value=error.value,
            remedy=error.remedy or "save it again",
        ) from error
    except Exception as error:
        reason = first_line(error)
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
