"""A real PostgreSQL server for tests, started where its binaries are installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
PASSWORD = "s3cret%/@word"


def binaries() -> Path:
    """The folder of `initdb` and `postgres`; skips the test where there is none."""
    pytest.importorskip("adbc_driver_postgresql")
    found = shutil.which("initdb")
    if found is None and not BINARIES:
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")
    return Path(found).parent if found else BINARIES[-1].parent


def as_other_user(folder: Path) -> list[str]:
    """PostgreSQL refuses to run as root: the server then runs as the user postgres, or as nobody."""
    if os.geteuid() != 0:
        return []
    user = "postgres" if subprocess.run(["id", "postgres"], capture_output=True).returncode == 0 else "nobody"
    shutil.chown(folder, user)
    return ["runuser", "-u", user, "--"]


@contextmanager
def server() -> Iterator[str]:
    """The address of a server with an empty database; the user `tefm` needs the password."""
    found = binaries()
    folder = Path(tempfile.mkdtemp(prefix="tefm-pg-", dir="/tmp"))  # other users cannot read pytest's own folders
    prefix = as_other_user(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "password").write_text(PASSWORD)
    (folder / "password").chmod(0o644)
    data, log = folder / "data", folder / "log"
    try:
        subprocess.run(
            [*prefix, found / "initdb", "-D", data, "-U", "tefm", "--auth=scram-sha-256", "--no-sync", "-E", "UTF8",
             f"--pwfile={folder / 'password'}"],
            check=True, capture_output=True, cwd="/",
        )  # fmt: skip
        settings = f"-k {folder} -p {port} -c listen_addresses=127.0.0.1 -c fsync=off -c shared_buffers=16MB"
        control = [*prefix, found / "pg_ctl", "-D", data, "-w"]
        subprocess.run([*control, "-l", log, "-o", settings, "start"], check=True, stdout=subprocess.DEVNULL, cwd="/")
        try:
            yield f"postgresql://tefm@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], check=True, stdout=subprocess.DEVNULL, cwd="/")
    finally:
        shutil.rmtree(folder)


def execute(address: str, *statements: str) -> list[tuple[object, ...]]:
    """Run statements as the user `tefm`; the rows of the last one."""
    from adbc_driver_postgresql import dbapi

    from tefm.tables.readers.databases import Address

    uri = Address.of(with_password(address)).uri
    with dbapi.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []


def with_password(address: str) -> str:
    return address.replace("tefm@", f"tefm:{PASSWORD}@")
