"""Keys, limits, headers, logs."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest
from commands import refused
from conftest import Explained
from support.serving import client_of, listening, rows_of, until

from tefm.base.errors import InputError, SettingsError
from tefm.base.progress import log
from tefm.model.estimator import TEFM
from tefm.serve.protect import Keys, check_host
from tefm.serve.served import Served

KEY, OTHER = "0123456789abcdef", "fedcba9876543210"


def test_keys_open_the_server(fitted: TEFM) -> None:
    with client_of(fitted, keys=[KEY, OTHER]) as client:
        for path in ("/", "/healthz", "/readyz", "/page/page.js"):
            assert client.get(path).status_code == 200
        for path in ("/v1/models", "/metrics", "/openapi.json", "/v1/nothing"):
            response = client.get(path)
            assert response.status_code == 401 and response.headers["www-authenticate"] == "Bearer"
        body = {"rows": rows_of(1)}
        for headers in ({}, {"Authorization": f"Bearer {KEY}x"}, {"Authorization": f"Basic {KEY}"}, {"X-API-Key": "é"}):
            raw = {name: value.encode("latin1") for name, value in headers.items()}
            assert client.post("/v1/predict", json=body, headers=raw).status_code == 401
        for headers in ({"Authorization": f"Bearer {KEY}"}, {"Authorization": f"bearer {OTHER}"}, {"X-API-Key": KEY}):
            assert client.post("/v1/predict", json=body, headers=headers).status_code == 200
        # with keys, any name will do
        assert client.get("/v1/models", headers={"X-API-Key": KEY, "Host": "tefm.example.org"}).status_code == 200


def test_without_keys_only_loopback_names_are_answered(fitted: TEFM) -> None:
    with client_of(fitted) as client:
        for host in ("127.0.0.1:8000", "localhost", "[::1]:80"):
            assert client.get("/v1/models", headers={"Host": host}).status_code == 200
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", ""):
            assert client.get("/v1/models", headers={"Host": host}).status_code == 403


def test_without_keys_a_page_of_another_site_cannot_post(fitted: TEFM) -> None:
    """What a browser sends for it without asking first has no type of its own, or one that is not ours."""
    content = json.dumps({"rows": rows_of(1)})
    with client_of(fitted) as client:
        for path in ("/v1/predict", "/v1/explain"):
            for headers in ({}, {"Content-Type": "text/plain"}):
                response = client.post(path, content=content, headers={"Origin": "https://evil.example", **headers})
                assert response.status_code == 415, response.text
                assert "Content-Type: application/json" in response.json()["error"]["remedy"]
    with client_of(fitted, keys=[KEY]) as client:  # a page of another site does not know the key
        assert client.post("/v1/predict", content=content, headers={"X-API-Key": KEY}).status_code == 200


def test_no_redirect_follows_the_host_header(fitted: TEFM) -> None:
    with client_of(fitted, keys=[KEY]) as client:
        headers = {"Host": "evil.example", "X-API-Key": KEY}
        for path in ("/page/page.js/", "/v1/models/", "/healthz/"):
            response = client.get(path, headers=headers, follow_redirects=False)
            assert response.status_code == 404 and "location" not in response.headers


def test_a_client_that_leaves_while_it_sends_is_no_internal_error(
    fitted: TEFM, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "propagate", True)
    caplog.set_level("INFO", "tefm")
    lines = ("POST /v1/predict HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", "Content-Length: 99")
    with listening(Served("stays", fitted)) as port:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(("\r\n".join(lines) + '\r\n\r\n{"rows": [').encode())
            time.sleep(0.2)
        until(lambda: any("/v1/predict" in record.getMessage() for record in caplog.records))
    assert "POST /v1/predict 499" in caplog.text
    assert "internal error" not in caplog.text


def test_without_keys_the_server_does_not_listen_elsewhere(explained: Explained, tmp_path: Path) -> None:
    explained(SettingsError, lambda: check_host("0.0.0.0", Keys([])), "0.0.0.0", "--api-key-file")
    check_host("0.0.0.0", Keys([KEY]))
    check_host("::1", Keys([]))
    assert "loopback" in refused("serve", tmp_path, "--host", "0.0.0.0")


def test_keys_are_read_from_a_file(tmp_path: Path, explained: Explained) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# two keys\n{KEY}\n\n  {OTHER}  \n")
    keys = Keys.read(path)
    assert len(keys) == 2 and keys.allow(KEY) and keys.allow(OTHER) and not keys.allow("# two keys")
    assert not keys.allow(None) and not keys.allow("")
    path.write_text("# nothing\n")
    explained(InputError, lambda: Keys.read(path), "no keys")
    path.write_text(f"{KEY}\nshort\n")
    error = explained(InputError, lambda: Keys.read(path), "line 2")
    assert "short" not in str(error).replace("too short", "")
    explained(InputError, lambda: Keys.read(tmp_path / "none"), "cannot be read")


def test_a_large_body_is_refused_however_it_comes(fitted: TEFM) -> None:
    with client_of(fitted, max_megabytes=2_000 / (1 << 20)) as client:
        large = b'{"rows": [' + b" " * 3_000 + b"]}"
        chunks = (large[i : i + 500] for i in range(0, len(large), 500))
        for content in (large, chunks):
            response = client.post("/v1/predict", content=content, headers={"Content-Type": "application/json"})
            assert response.status_code == 413, response.text
            assert "--max-megabytes" in response.json()["error"]["remedy"]
        assert client.post("/v1/predict", json={"rows": rows_of(1)}).status_code == 200


def test_the_log_holds_no_records(
    fitted: TEFM, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "propagate", True)
    caplog.set_level("INFO", "tefm")
    row = {**rows_of(1)[0], "patient": "Ada-Lovelace", "ward": "Ada-ward"}
    with client_of(fitted) as client:
        client.post("/v1/predict?x=Ada", json={"rows": [row]})
        client.post("/v1/predict", json={"rows": [{**row, "age": "Ada-age"}]})
        client.post("/v1/models/Ada/predict", json={"rows": [row]})
        client.get("/Ada")
        client.post("/v1/explain", json={"rows": [row]})
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.startswith("POST /v1/predict 200") and line.endswith(", 1 row") for line in lines)
    assert any(line.startswith("GET unknown 404") for line in lines)
    assert not [line for line in lines if "Ada" in line]
