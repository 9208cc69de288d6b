"""Models of MLflow: saved, logged, loaded, and served by MLflow's own server."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import Explained, stays

from tefm.base.errors import InputError
from tefm.model.estimator import TEFM

mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
import tefm.mlflow  # noqa: E402

pytestmark = pytest.mark.slow
ROWS = stays(12, seed=3).drop("died").to_pandas()


@pytest.fixture(scope="module")
def stored(fitted: TEFM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mlflow") / "mlmodel"
    tefm.mlflow.save_model(fitted, path)
    return path


def test_a_saved_model_predicts_the_same(fitted: TEFM, stored: Path) -> None:
    right = fitted.predict_table(ROWS)
    assert isinstance(right, pd.DataFrame)
    pd.testing.assert_frame_equal(tefm.mlflow.load_model(stored).predict_table(ROWS), right, atol=1e-5)
    through_mlflow = mlflow.pyfunc.load_model(str(stored))
    pd.testing.assert_frame_equal(through_mlflow.predict(ROWS), right, atol=1e-5)
    assert not [path for path in stored.rglob("*") if path.suffix == ".pkl"]


def test_a_logged_model_is_found_again(fitted: TEFM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a folder, where others have a database
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    try:
        with mlflow.start_run():
            logged = tefm.mlflow.log_model(fitted)
        assert tefm.mlflow.load_model(logged.model_uri).classes_.tolist() == ["no", "yes"]
    finally:
        mlflow.set_tracking_uri(None)


def test_other_models_are_refused(tmp_path: Path, explained: Explained) -> None:
    (tmp_path / "other.py").write_text(
        "class Other:\n    def predict(self, frame, params=None):\n        return frame\n"
    )

    mlflow.pyfunc.save_model(
        str(tmp_path / "other"), loader_module="test_mlflow", data_path=str(tmp_path / "other.py"), pip_requirements=[]
    )
    explained(InputError, lambda: tefm.mlflow.load_model(tmp_path / "other"), "not saved by tefm")


class _Other:
    def predict(self, frame: Any) -> Any:
        return frame

    def get_raw_model(self) -> Any:
        return self


def _load_pyfunc(path: str) -> _Other:
    return _Other()


@pytest.mark.all
def test_mlflow_serves_it(fitted: TEFM, stored: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "models", "serve", "--model-uri", str(stored), "--env-manager", "local"]
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # it starts uvicorn by name
    server = subprocess.Popen(
        [*command, "--port", str(port), "--host", "127.0.0.1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PATH": paths},
        start_new_session=True,
    )
    try:
        _wait_for(server, port)
        right = fitted.predict_table(ROWS)
        records = json.loads(ROWS.to_json(orient="records"))
        split = json.loads(ROWS.to_json(orient="split", index=False))
        for body in ({"dataframe_records": records}, {"dataframe_split": split}):
            status, reply = _post(port, body)
            assert status == 200, reply
            got = pd.DataFrame(reply["predictions"])
            pd.testing.assert_frame_equal(got, right, atol=1e-5, check_dtype=False)
        status, reply = _post(port, {"dataframe_records": [{"age": 3}]})
        assert status in (400, 500) and "columns are missing" in json.dumps(reply, ensure_ascii=False)
    finally:
        os.killpg(server.pid, signal.SIGKILL)  # MLflow leaves its server behind otherwise
        server.communicate()


def _wait_for(server: subprocess.Popen[str], port: int, seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if server.poll() is not None:
            pytest.fail(f"mlflow ended: {server.communicate()[0]}")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/ping")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.2)
        finally:
            connection.close()
    pytest.fail("mlflow does not answer")


def _post(port: int, body: Any) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", "/invocations", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()
