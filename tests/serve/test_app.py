"""The API: every route, its errors, its documentation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import ONLY_PREDICTS, quick, stays
from fastapi.testclient import TestClient
from support.serving import client_of, rows_of

from tefm.explain.explanation import Explanation
from tefm.model.estimator import TEFM
from tefm.serve.served import Served


@pytest.fixture(scope="module")
def client(fitted: TEFM) -> Iterator[TestClient]:
    with client_of(Served("stays", fitted), Served("twin", fitted), max_rows=100) as client:
        yield client


def problem(response: Any, status: int = 422) -> dict[str, Any]:
    """The error of a reply, which has a message and never a traceback."""
    assert response.status_code == status, response.text
    assert "Traceback" not in response.text and "/work" not in response.text
    error: dict[str, Any] = response.json()["error"]
    assert error["problem"] and error["problem"] in error["message"]
    return error


# ---- predictions ----------------------------------------------------------------------------------------------------


def test_predictions_are_those_of_the_model(client: TestClient, fitted: TEFM) -> None:
    rows = rows_of(12)
    reply = client.post("/v1/predict", json={"rows": rows, "codes": True}).json()
    table = fitted.predict_table(rows)
    assert reply["model"] == "stays"
    assert [one["id"] for one in reply["predictions"]] == table["patient"].to_list()
    assert [one["predicted"] for one in reply["predictions"]] == table["predicted"].to_list()
    assert [len(one["rows"]) for one in reply["predictions"]] == table["records"].to_list()
    for name in fitted.fitted.classes:
        np.testing.assert_allclose(
            [one["probabilities"][name] for one in reply["predictions"]], table[f"p({name})"], atol=1e-5
        )
    for one in reply["predictions"]:
        assert one["p"] == one["probabilities"][one["predicted"]]
        assert len(one["codes"]) == len(one["rows"]) and {len(code) for code in one["codes"]} == {2}
    assert client.post("/v1/predict", json={"rows": rows}).json()["predictions"][0]["codes"] is None


def test_a_csv_gets_the_same_answer(client: TestClient) -> None:
    rows = rows_of(4)
    as_json = client.post("/v1/predict", json={"rows": rows}).json()
    csv = pl.DataFrame(rows).write_csv()
    as_csv = client.post("/v1/predict?codes=false", content=csv, headers={"Content-Type": "text/csv; charset=utf-8"})
    assert as_csv.json() == as_json


def test_a_model_is_chosen_by_name(client: TestClient) -> None:
    body = {"rows": rows_of(1)}
    assert client.post("/v1/predict", json=body).json()["model"] == "stays"
    assert client.post("/v1/predict", json={**body, "model": "twin"}).json()["model"] == "twin"
    assert client.post("/v1/models/twin/predict", json=body).json()["model"] == "twin"
    error = problem(client.post("/v1/predict", json={**body, "model": "twins"}), 404)
    assert error["value"] == "twins" and "'twin'" in error["remedy"]


# ---- explanations ---------------------------------------------------------------------------------------------------


def test_explanations_are_those_of_the_model(client: TestClient, fitted: TEFM) -> None:
    rows = rows_of(3)
    reply = client.post("/v1/explain", json={"rows": rows, "html": True, "of_class": "yes"}).json()
    own = fitted.explain(rows, of_class="yes")
    assert [one["verdict"] for one in reply["explanations"]] == [one.verdict for one in own]
    for got, right in zip(reply["explanations"], own, strict=True):
        body = {k: v for k, v in got["explanation"].items() if k not in ("conclusion", "context", "risk")}
        assert Explanation.from_json(body).settling.findings == right.settling.findings
        assert got["conclusion"] == right.conclusion
        assert got["html"].startswith("<article") and "<script" not in got["html"]
        assert ("Over time" in got["html"]) == (right.records > 1)
    assert client.post("/v1/explain", json={"rows": rows[:1]}).json()["explanations"][0]["html"] is None


def test_a_card_shows_values_as_text(client: TestClient) -> None:
    row = {**rows_of(1)[0], "patient": "<img src=x onerror=alert(1)>"}
    (one,) = client.post("/v1/explain", json={"rows": [row], "html": True}).json()["explanations"]
    assert "<img" not in one["html"] and "&lt;img" in one["html"]


def test_too_many_to_explain_and_a_model_that_cannot(client: TestClient, backbones: dict[str, Any]) -> None:
    assert "10 are allowed" in problem(client.post("/v1/explain", json={"rows": rows_of(11)}))["problem"]
    error = problem(client.post("/v1/explain", json={"rows": rows_of(1), "of_class": "maybe"}))
    assert error["value"] == "maybe" and "'no', 'yes'" in error["remedy"]
    assert "precision" in problem(client.post("/v1/explain", json={"rows": rows_of(1), "precision": 2}))["problem"]
    plain = quick(backbones["llama"], **ONLY_PREDICTS, tune={"steps": 5}).fit(stays(60))
    with client_of(plain) as other:
        assert "cannot explain" in problem(other.post("/v1/explain", json={"rows": rows_of(1)}))["problem"]
        assert other.get("/v1/models").json()["data"][0]["explains"] is False


# ---- errors of the client -------------------------------------------------------------------------------------------


def test_a_wrong_value_is_named(client: TestClient) -> None:
    error = problem(client.post("/v1/predict", json={"rows": [{**rows_of(1)[0], "age": "old"}]}))
    assert (error["column"], error["value"]) == ("age", "old") and error["remedy"]
    error = problem(client.post("/v1/predict", json={"rows": [{"age": 3}]}))
    assert "− patient" in error["problem"] and error["remedy"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[1]", "object"),
        ("{}", "'rows' is missing"),
        ('{"rows": []}', "no rows"),
        ('{"rows": [1]}', "rows.0"),
        ('{"rows": [{"age": {"a": 1}}]}', "rows.0.age"),
        ('{"rows": [{}]}', "no columns"),
        ('{"rows": [{"patient": "a"}], "code": true}', "unknown setting 'code'"),
        ('{"rows": "x", "absent": "perhaps"}', "absent"),
        ("[" * 100_000, "not valid JSON"),
        ('{"rows": [{"patient": "\\ud800"}]}', "not valid JSON"),
    ],
)
def test_a_bad_body_is_explained(client: TestClient, content: str, words: str) -> None:
    response = client.post("/v1/predict", content=content, headers={"Content-Type": "application/json"})
    assert words in problem(response)["problem"]


def test_other_refusals(client: TestClient) -> None:
    assert "101 rows" in problem(client.post("/v1/predict", json={"rows": [rows_of(1)[0]] * 101}))["problem"]
    assert (
        "neither"
        in problem(client.post("/v1/predict", content=b"<x/>", headers={"Content-Type": "text/xml"}), 415)["problem"]
    )
    problem(client.get("/v1/nothing"), 404)
    problem(client.get("/v1/predict"), 405)
    problem(client.post("/v1/predict?rows=1", content="a", headers={"Content-Type": "text/csv"}))


# ---- about the server -----------------------------------------------------------------------------------------------


def test_models_describe_their_columns(client: TestClient) -> None:
    one, _ = client.get("/v1/models").json()["data"]
    columns = {column["name"]: column for column in one["columns"]}
    assert list(columns) == ["patient", "day", "age", "ward", "drugs"]
    assert columns["patient"]["role"] == "entity" and columns["drugs"]["delimiter"] == ";"
    assert {value["value"] for value in columns["ward"]["values"]} == {"surgery", "heart", "lung"}
    assert columns["age"]["low"] >= 20 and columns["age"]["high"] <= 90
    assert one["classes"] == ["no", "yes"] and one["positive"] == "yes" and one["explains"]
    reply = client.post("/v1/predict", json={"rows": one["example"]})
    assert len(reply.json()["predictions"]) == len(one["example"]) == 6


def test_every_documented_example_is_answered(client: TestClient) -> None:
    spec = client.get("/openapi.json").json()
    asked = 0
    for path in ("/v1/predict", "/v1/explain"):
        post = spec["paths"][path]["post"]
        assert "422" in post["responses"] and "429" in post["responses"]
        for kind, body in post["requestBody"]["content"].items():
            example = body["example"]
            content = example if kind == "text/csv" else json.dumps(example)
            response = client.post(path, content=content, headers={"Content-Type": kind})
            assert response.status_code == 200, response.text
            asked += 1
    assert asked == 4
    text = json.dumps(spec)
    for reference in {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}:
        assert reference in spec["components"]["schemas"]


def test_probes_and_metrics(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").status_code == 200
    before = _counted(client.get("/metrics").text, "tefm_predictions_total")
    client.post("/v1/predict", json={"rows": rows_of(5)})
    text = client.get("/metrics").text
    assert _counted(text, "tefm_predictions_total") == before + 5
    assert 'tefm_requests_total{route="/v1/predict",status="200"}' in text
    assert 'tefm_queue{lane="predict"} 0.0' in text


def _counted(text: str, name: str) -> float:
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{name}{{"))


def test_the_page_loads_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "http" not in policy
    for name in ("page.css", "card.css", "page.js", "dom.js", "records.js", "what_if.js"):
        part = client.get(f"/page/{name}")
        assert part.status_code == 200 and "http:" not in part.text and "https:" not in part.text
        assert (
            name in page.text or f"./{name}" in client.get("/page/page.js").text + client.get("/page/what_if.js").text
        )
    problem(client.get("/page/../served.py"), 404)
    problem(client.get("/page/secret.txt"), 404)


def test_what_the_model_does_not_read_as_it_is_gets_a_notice(client: TestClient, fitted: TEFM) -> None:
    usual = {"patient": "p", "day": "2024-01-01", "age": 50, "ward": "heart", "drugs": None}
    rows = [usual, {**usual, "day": "2024-01-02", "ward": "attic"}, {**usual, "patient": "q", "age": 4_000}]
    reply = client.post("/v1/predict", json={"rows": rows}).json()
    (ward,), (age,) = (one["notices"] for one in reply["predictions"])
    assert "ward: 'attic'" in ward and "other" in ward
    assert "age: 4000 is outside the range of training" in age
    assert reply["decision"] == fitted.fitted.decision_in_words
    info = client.get("/v1/models").json()["data"][0]
    assert info["decision"] == reply["decision"] and not any(column["static"] for column in info["columns"])


def test_an_error_names_the_row_and_what_to_do_here(client: TestClient) -> None:
    rows = rows_of(3)
    rows[1]["age"] = "old"
    for path in ("predict", "explain"):
        error = client.post(f"/v1/{path}", json={"rows": rows}).json()["error"]
        assert error["problem"].startswith("row 2: ") and (error["column"], error["value"]) == ("age", "old")
    error = client.post("/v1/predict", json={"rows": [{"patient": "p", "day": "2024-01-01"}]}).json()["error"]
    assert "--absent" not in error["remedy"] and "missing columns are absent" in error["remedy"]
