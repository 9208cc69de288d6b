"""Questions in words over HTTP: answers with what they are worth, explanations, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import stays
from support.serving import client_of, rows_of

from tefm.model.estimator import TEFM

QUESTION = "Next stay: statin?"


@pytest.fixture(scope="module")
def asked(fitted_with_questions: TEFM) -> TEFM:
    return fitted_with_questions


def test_answers_are_those_of_the_model(asked: TEFM) -> None:
    rows, texts = rows_of(4), [QUESTION, "Will it rain?"]
    with client_of(asked) as client:
        reply = client.post("/v1/ask", json={"rows": rows, "question": texts}).json()
        one = client.post("/v1/models/model0/ask", json={"rows": rows, "question": QUESTION}).json()
        header = {"content-type": "text/csv"}
        csv = stays(4, seed=3).drop("died").write_csv()
        as_csv = client.post("/v1/ask", params={"question": QUESTION}, content=csv, headers=header).json()
        info = client.get("/v1/models").json()["data"][0]
    expected = asked.ask(stays(4, seed=3), texts)
    assert [answer["id"] for answer in reply["answers"]] == expected["patient"].to_list()
    assert [answer["p"] for answer in reply["answers"]] == pytest.approx(expected["p(yes)"].to_list(), abs=1e-5)
    assert [answer["known"] for answer in reply["answers"]] == expected["known"].to_list()
    assert [answer["remark"] for answer in reply["answers"]] == expected["remark"].to_list()
    assert all(answer["worth"] for answer in reply["answers"])
    for other in (one, as_csv):
        assert [answer["p"] for answer in other["answers"]] == pytest.approx(expected["p(yes)"].to_list()[:4], abs=1e-5)
    assert QUESTION in info["questions"]


def test_an_answer_is_explained(asked: TEFM) -> None:
    with client_of(asked) as client:
        body = {"rows": rows_of(1), "question": QUESTION, "html": True}
        (explained,) = client.post("/v1/explain", json=body).json()["explanations"]
        again = client.post("/v1/explain", json=body).json()["explanations"][0]
        predicted = client.post("/v1/predict", json={"rows": rows_of(1)}).json()["predictions"][0]
    assert set(explained["probabilities"]) == {"no", "yes"}
    assert QUESTION in explained["html"]
    assert again["probabilities"] == pytest.approx(explained["probabilities"], abs=1e-5)
    assert predicted["predicted"] in ("no", "yes")  # the label, which is still what is predicted


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"question": ""}, 422, "the question is empty"),
        ({"question": []}, 422, "there is no question"),
        ({}, 422, "'question' is missing"),
        ({"question": "a" * 600}, 422, "600 characters"),
        ({"question": QUESTION, "questions": []}, 422, "did you mean 'question'?"),
    ],
)
def test_refused(asked: TEFM, body: dict[str, Any], status: int, words: str) -> None:
    with client_of(asked) as client:
        reply = client.post("/v1/ask", json={"rows": rows_of(1), **body})
    assert reply.status_code == status
    assert words in reply.json()["error"]["message"]


def test_too_many_answers_at_once(asked: TEFM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tefm.serve.served.MAX_ANSWERS", 3)
    with client_of(asked) as client:
        reply = client.post("/v1/ask", json={"rows": rows_of(2), "question": [QUESTION, "Why?"]})
    assert reply.status_code == 422
    assert "more than 3 answers" in reply.json()["error"]["message"]


def test_too_many_questions_at_once(asked: TEFM) -> None:
    with client_of(asked) as client:
        reply = client.post("/v1/ask", json={"rows": rows_of(1), "question": [f"Why {n}?" for n in range(101)]})
    assert reply.status_code == 422
    assert "101 questions, and 100 are allowed" in reply.json()["error"]["message"]


def test_a_model_without_questions(fitted: TEFM) -> None:
    with client_of(fitted) as client:
        reply = client.post("/v1/ask", json={"rows": rows_of(1), "question": QUESTION})
        info = client.get("/v1/models").json()["data"][0]
    assert reply.status_code == 422 and "does not answer questions" in reply.json()["error"]["message"]
    assert info["questions"] == []
