"""Where results go: checked before the work starts, held by one process at a time, cleaned up after killed ones.

What a run writes has a temporary name until it is complete. The name holds the machine and the process, so that the
next run can tell what a killed one has left behind from what another one is writing.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tefm.base.errors import InputError

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
        reason = os.strerror(code) if code is not None else str(error).strip().splitlines()[0]
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
        with tempfile.TemporaryFile(dir=path.parent) as probe:
            probe.write(bytes(PROBE))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        raise _cannot_write(path, error.strerror) from error


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
                    f"{holder} is writing here at this moment", file=path, remedy="wait for it, or give another path"
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
