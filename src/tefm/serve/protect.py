"""Middleware in front of the routes: keys, limits, security headers, the access log. None of it shows a record.

Keys are compared by their hashes, in constant time. A server without keys answers on loopback only, and only to
requests that name it so: a web page elsewhere cannot reach it under a name of its own.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import time
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tefm.base.errors import InputError, SettingsError, failing_as
from tefm.base.progress import log
from tefm.serve.messages import InternalError, RefusedError, error_reply
from tefm.serve.service import Service
from tefm.serve.worker import where

#: What needs no key: the page has no data of its own, and probes have no keys.
OPEN = ("/", "/healthz", "/readyz")
OPEN_BELOW = "/page/"
SHORTEST_KEY = 16
#: Everything that the page needs comes from here; effects are drawn with a width in a style attribute.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]


class Keys:
    """The keys that clients may use; without any, every client may come."""

    def __init__(self, keys: list[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    def __len__(self) -> int:
        return len(self._digests)

    def allow(self, key: str | None) -> bool:
        """Whether a client with this key is let in; takes the same time for every key."""
        given = _digest(key or "")
        equal = [hmac.compare_digest(given, digest) for digest in self._digests]
        return any(equal) or not self._digests

    @classmethod
    def read(cls, path: Path) -> Keys:
        """One key per line; lines that begin with # are comments."""
        problem, remedy = "the keys cannot be read: {reason}", "give a text file"
        with failing_as((OSError, UnicodeDecodeError), problem, file=path, remedy=remedy):
            lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        keys = [line for line in lines if line and not line.startswith("#")]
        remedy = f"write one key per line, of {SHORTEST_KEY} characters or more: openssl rand -hex 24"
        if not keys:
            raise InputError("the file holds no keys", file=path, remedy=remedy)
        for number, line in enumerate(lines, start=1):
            if line in keys and (len(line) < SHORTEST_KEY or not line.isascii()):
                raise InputError(f"the key in line {number} is too short or not ASCII", file=path, remedy=remedy)
        return cls(keys)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def is_loopback(host: str) -> bool:
    """
    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_host(host: str, keys: Keys) -> None:
    """Refuse to open a server without keys to others."""
    if not len(keys) and not is_loopback(host):
        raise SettingsError(
            "without API keys, the server listens on loopback only",
            value=host,
            remedy="give --api-key-file FILE, or --host 127.0.0.1 behind a proxy that authenticates users",
        )


class Protect:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, service: Service, keys: Keys) -> None:
        self.app, self.service, self.keys = app, service, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status, begun = time.perf_counter(), 500, False
        self.service.accepted += 1
        scope.setdefault("state", {})

        async def sending(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                given = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(pair for pair in HEADERS if pair[0] not in given)]
                if self.service.draining:  # the client opens its next connection elsewhere
                    message["headers"].append((b"connection", b"close"))
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                self.service.answered += 1

        try:
            self._check(scope)
            await self.app(scope, self._limited(receive), sending)
        except RefusedError as refused:
            await error_reply(refused)(scope, receive, sending)
        except Exception as error:
            log.error(f"internal error:\n{where(error)}")
            if not begun:
                await error_reply(InternalError())(scope, receive, sending)
        self._note(scope, status, time.perf_counter() - started)

    def _check(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if not len(self.keys):
            host = headers.get(b"host", b"").decode("latin1")
            name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
            if not is_loopback(name.strip("[]")):
                remedy = "use http://127.0.0.1, or start the server with --api-key-file"
                raise RefusedError(403, "a server without API keys answers to loopback names only", remedy=remedy)
            if scope["method"] == "POST" and b"content-type" not in headers:
                # a browser sends such a request for a page of another site without asking first
                raise RefusedError(
                    415,
                    "a server without API keys requires a content type",
                    remedy="set Content-Type: application/json or text/csv",
                )
        path = scope["path"]
        if path not in OPEN and not path.startswith(OPEN_BELOW) and not self.keys.allow(_key(headers)):
            raise RefusedError(
                401,
                "the API key is missing or wrong",
                remedy="send the header Authorization: Bearer KEY",
                headers={"WWW-Authenticate": "Bearer"},
            )
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.service.settings.max_bytes:
            raise self._too_large()

    def _limited(self, receive: Receive) -> Receive:
        read = 0

        async def receiving() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self.service.settings.max_bytes:
                raise self._too_large()
            return message

        return receiving

    def _too_large(self) -> RefusedError:
        most = self.service.settings.max_bytes
        remedy = "send fewer rows at a time, or start the server with a larger --max-megabytes"
        return RefusedError(
            413, f"the request is larger than {most / (1 << 20):g} MiB", remedy=remedy, headers={"Connection": "close"}
        )

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        """One line of the access log, and the counts: the route, not the path, which is the client's to choose."""
        route = getattr(scope.get("route"), "path", "unknown")
        metrics, rows = self.service.metrics, scope["state"].get("rows")
        metrics.requests.labels(route, str(status)).inc()
        metrics.seconds.labels(route).observe(seconds)
        if route not in ("/healthz", "/readyz", "/metrics"):
            about = "" if rows is None else f", {rows} row{'' if rows == 1 else 's'}"
            log.info(f"{scope['method']} {route} {status} {1_000 * seconds:.0f} ms{about}")


def _key(headers: dict[bytes, bytes]) -> str | None:
    scheme, _, key = headers.get(b"authorization", b"").decode("latin1").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    own = headers.get(b"x-api-key")
    return None if own is None else own.decode("latin1").strip()
