"""Bundles on the hub, against a stand-in server that speaks the few endpoints of the hub that are used."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from conftest import Explained, stays

from tefm.base.errors import ArtefactError, InputError
from tefm.base.files import MANIFEST
from tefm.model import hub
from tefm.model.estimator import TEFM

NAME = "someone/stays"


class StandIn(BaseHTTPRequestHandler):
    """Repositories in memory: create, preupload, commit, list, resolve."""

    repositories: dict[str, dict[str, bytes]]
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def reply(self, body: Any, status: int = 200, **headers: str) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def files(self) -> dict[str, bytes] | None:
        return self.repositories.get(NAME) if f"/{NAME}/" in f"{self.path}/" else None

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Authorization") != "Bearer hf_right":
            self.reply({"error": "not allowed"}, 401)
        elif self.path == "/api/repos/create":
            self.repositories.setdefault(NAME, {".gitattributes": b"* text"})
            self.reply({"url": f"http://{self.headers['Host']}/{NAME}", "id": NAME})
        elif self.path == "/api/validate-yaml":
            front_matter = json.loads(body)["content"].split("---")[1]
            assert "base_model" in yaml.safe_load(front_matter)
            self.reply({"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            files = [
                {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
                for one in json.loads(body)["files"]
            ]
            self.reply({"files": files})
        elif "/commit/" in self.path:
            files = self.repositories[NAME]
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                elif line["key"] == "deletedFile":
                    del files[line["value"]["path"]]
            address = f"http://{self.headers['Host']}/{NAME}/commit/{self.commit}"
            self.reply({"commitUrl": address, "commitOid": self.commit})
        else:
            self.reply({"error": self.path}, 404)

    @property
    def commit(self) -> str:
        return hashlib.sha1(repr(sorted(self.repositories[NAME].items())).encode()).hexdigest()

    def do_GET(self) -> None:
        files = self.files()
        if files is None:
            self.reply({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
        elif "/resolve/" in self.path:
            content = files[self.path.partition("/resolve/")[2].partition("/")[2]]
            self.reply(content, ETag=f'"{hashlib.sha1(content).hexdigest()}"', X_Repo_Commit=self.commit)
        elif "/tree/" in self.path:
            self.reply(
                [
                    {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                    for path, content in files.items()
                ]
            )
        else:
            siblings = [{"rfilename": path} for path in files]
            self.reply(
                {"id": NAME, "modelId": NAME, "sha": self.commit, "siblings": siblings, "private": True, "tags": []}
            )

    do_HEAD = do_GET


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    monkeypatch.setenv("TEFM_CACHE", str(tmp_path / "cache"))
    StandIn.repositories = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_model_makes_the_round_trip(fitted: TEFM, endpoint: str, tmp_path: Path) -> None:
    bundle = fitted.save(tmp_path / "model")
    address = hub.upload(bundle, NAME, token="hf_right", endpoint=endpoint)
    assert address.startswith(f"{endpoint}/{NAME}/commit/")
    stored = StandIn.repositories[NAME]
    assert "model.json" in stored and any(name.startswith("language/") for name in stored)
    stored["unlisted.py"] = b"print('never')"
    folder = hub.download(NAME, token="hf_right", endpoint=endpoint)
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {str(path.relative_to(bundle)) for path in bundle.rglob("*") if path.is_file()}
    assert not any(path.is_symlink() for path in folder.rglob("*"))
    rows = stays(10, seed=5).drop("died")
    np.testing.assert_array_equal(TEFM.load(folder).predict_proba(rows), TEFM.load(bundle).predict_proba(rows))
    stored[MANIFEST] += b" "  # another commit is another folder
    assert hub.download(NAME, endpoint=endpoint) != folder
    # a second upload replaces everything
    hub.upload(bundle, NAME, token="hf_right", endpoint=endpoint)
    assert "unlisted.py" not in StandIn.repositories[NAME]


def test_a_damaged_model_is_refused_and_not_kept(
    fitted: TEFM, endpoint: str, tmp_path: Path, explained: Explained
) -> None:
    hub.upload(fitted.save(tmp_path / "model"), NAME, token="hf_right", endpoint=endpoint)
    StandIn.repositories[NAME]["model.json"] += b" "
    explained(ArtefactError, lambda: hub.download(NAME, endpoint=endpoint), "changed or damaged")
    StandIn.repositories[NAME][MANIFEST] = b"[]"
    explained(ArtefactError, lambda: hub.download(NAME, endpoint=endpoint), "manifest is damaged")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_what_cannot_be_reached_is_explained(fitted: TEFM, endpoint: str, tmp_path: Path, explained: Explained) -> None:
    explained(InputError, lambda: hub.download("no one/nothing", endpoint=endpoint), "no one/nothing")
    explained(InputError, lambda: hub.download("someone/other", endpoint=endpoint), "someone/other")
    bundle = fitted.save(tmp_path / "model")
    explained(InputError, lambda: hub.upload(bundle, NAME, token="hf_wrong", endpoint=endpoint), "cannot be uploaded")
    explained(ArtefactError, lambda: hub.upload(tmp_path, NAME, endpoint=endpoint), "manifest")


def test_a_folder_is_a_pretrained_model(fitted: TEFM, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    rows = stays(3, seed=5).drop("died")
    pretrained = TEFM.from_pretrained(tmp_path / "model", device="cpu")
    np.testing.assert_allclose(pretrained.predict_proba(rows), fitted.predict_proba(rows), atol=1e-6)
