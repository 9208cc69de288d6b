"""Routes that clients of other servers know: vLLM's `/classify` and MLflow's `/invocations`."""

from __future__ import annotations

import time
import uuid
from typing import Any

from fastapi import FastAPI, Request, Response

from tefm.base.errors import InputError
from tefm.serve.documented import Documented, errors
from tefm.serve.messages import (
    Classified,
    ClassifyReply,
    ClassifyRequest,
    InvocationsReply,
    InvocationsRequest,
    Record,
    Usage,
)
from tefm.serve.rows import REQUEST, Rows
from tefm.serve.served import Answered, Served
from tefm.serve.service import RefusedError, Service, is_csv, parsed


def add_routes(app: FastAPI, service: Service, documented: Documented) -> None:
    settings, worker = service.settings, service.worker

    @app.post("/classify", responses=errors(ClassifyReply), openapi_extra=documented.classify, tags=["vLLM"])
    async def classify(request: Request) -> Response:
        """vLLM's classification: a label and the probabilities of all classes for each input."""
        body = await service.body(request)
        asked = await service.read(body, lambda: parsed(ClassifyRequest, body))
        served = service.named(asked.model)
        tables = await service.read(body, lambda: [served.reader.of_records(one) for one in inputs(asked)])
        service.check_rows(request, *tables)
        answered = await service.answer(request, lambda: worker.predict(served, tables), settings.timeout)
        for number, sequences in enumerate(answered):
            if len(sequences) != 1:
                raise InputError(
                    f"input {number} holds {len(sequences)} sequences",
                    file=REQUEST,
                    column=served.preparation.schema.entity,
                    remedy=f"give the records of one {served.preparation.sequence_noun} per input, or use /v1/predict",
                )
        sequences = [one for (one,) in answered]
        service.count(served, sequences)
        data = [
            Classified(index=index, label=one.predicted, probs=list(one.probabilities), num_classes=len(served.classes))
            for index, one in enumerate(sequences)
        ]
        tokens = sum(_tokens(one) for one in sequences)
        reply = ClassifyReply(
            id=f"classify-{uuid.uuid4().hex}",
            created=int(time.time()),
            model=served.name,
            data=data,
            usage=Usage(prompt_tokens=tokens, total_tokens=tokens),
        )
        return Response(reply.model_dump_json(), media_type="application/json")

    @app.post("/invocations", responses=errors(InvocationsReply), openapi_extra=documented.invocations, tags=["MLflow"])
    @app.post("/v1/models/{model}/invocations", responses=errors(InvocationsReply), include_in_schema=False)
    async def invocations(request: Request, model: str | None = None) -> Response:
        """MLflow's scoring of `dataframe_split`, `dataframe_records` or a CSV, with the columns of `predict_table`."""
        body = await service.body(request)
        served = service.named(model or request.query_params.get("model"))
        if is_csv(request):
            rows = await service.read(body, lambda: served.reader.of_csv(body))
        else:
            given = await service.read(body, lambda: parsed(InvocationsRequest, body))
            rows = await service.read(body, lambda: dataframe(served, given))
        service.check_rows(request, rows)
        (answered,) = await service.answer(request, lambda: worker.predict(served, [rows]), settings.timeout)
        service.count(served, answered)
        reply = InvocationsReply(predictions=[row(served, one) for one in answered])
        return Response(reply.model_dump_json(), media_type="application/json")


def inputs(asked: ClassifyRequest) -> list[list[Record]]:
    """The records of each input."""
    given = [asked.input] if isinstance(asked.input, dict) else asked.input
    if not given:
        raise RefusedError(422, "there is no input", remedy="give a record, or a list of records")
    return [[one] if isinstance(one, dict) else one for one in given]


def dataframe(served: Served, given: InvocationsRequest) -> Rows:
    """The rows of MLflow's request."""
    split, records = given.dataframe_split, given.dataframe_records
    if (split is None) == (records is None):
        raise RefusedError(
            422,
            "the request needs one of `dataframe_split` and `dataframe_records`",
            remedy='{"dataframe_records": [{…}]} or {"dataframe_split": {"columns": […], "data": [[…]]}}',
        )
    if split is not None:
        return served.reader.of_split(split.columns, split.data)
    return served.reader.of_records(records or [])


def row(served: Served, answered: Answered) -> dict[str, Any]:
    """A prediction with the columns of `predict_table`."""
    noun = served.preparation.sequence_noun
    columns: dict[str, Any] = {
        "records": len(answered.rows),
        "predicted": answered.predicted,
        **{f"p({name})": p for name, p in zip(served.classes, answered.probabilities, strict=True)},
    }
    return {noun: answered.name, **{name if name != noun else f"{name}_": cell for name, cell in columns.items()}}


def _tokens(answered: Answered) -> int:
    """The code tokens that the model reads; the words of the question are not counted."""
    return 0 if answered.codes is None else sum(map(len, answered.codes))
