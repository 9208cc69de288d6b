"""Tables that questions in words are asked about: patients with several admissions, and events of loan applications."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from tefm.tables.schema import Field, Schema
from tefm_bench.user_table import UserTable, file_of
from tefm_bench.user_tables import diabetes_of

#: The activities of BPIC 2012 in English; an application has offers, and work items that are done on it.
ACTIVITIES = {
    "A_SUBMITTED": "application submitted",
    "A_PARTLYSUBMITTED": "application partly submitted",
    "A_PREACCEPTED": "application accepted for now, more information needed",
    "A_ACCEPTED": "application accepted, to be completed",
    "A_FINALIZED": "application finalised",
    "A_CANCELLED": "application cancelled",
    "A_DECLINED": "application declined",
    "A_APPROVED": "application approved",
    "A_REGISTERED": "application registered",
    "A_ACTIVATED": "loan activated",
    "O_SELECTED": "offer selected",
    "O_CREATED": "offer created",
    "O_SENT": "offer sent to the customer",
    "O_SENT_BACK": "offer sent back by the customer",
    "O_ACCEPTED": "offer accepted",
    "O_CANCELLED": "offer cancelled",
    "O_DECLINED": "offer declined",
    "W_Afhandelen leads": "following up a lead",
    "W_Completeren aanvraag": "completing the application by phone",
    "W_Nabellen offertes": "calling the customer about an offer",
    "W_Nabellen incomplete dossiers": "calling the customer about missing documents",
    "W_Valideren aanvraag": "validating the application",
    "W_Beoordelen fraude": "judging a suspicion of fraud",
    "W_Wijzigen contractgegevens": "changing the contract",
}


def _returning(folder: Path) -> pl.DataFrame:
    """The patients with more than one admission: only they have a next one."""
    return diabetes_of(folder).frame.filter(pl.len().over("patient_nbr") > 1)


def _returning_schema(folder: Path) -> Schema:
    schema = diabetes_of(folder).schema
    return schema.model_copy(update={"label": None, "ignore": (*schema.ignore, "outcome")})


def _events(folder: Path) -> pl.DataFrame:
    """All events of every application, each with the minutes since the one before."""
    case = "case:concept:name"
    when = pl.col("time:timestamp").str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%:z", time_zone="UTC")
    events = pl.read_parquet(file_of(folder, "bpic2012/events.parquet")).with_columns(when.alias("time"))
    return events.sort("time", maintain_order=True).select(
        pl.col(case).alias("application"),
        "time",
        pl.col("concept:name").alias("activity"),
        pl.col("lifecycle:transition").alias("transition"),
        pl.col("case:AMOUNT_REQ").cast(pl.Float64).alias("amount"),
        (pl.col("time").diff().over(case).dt.total_milliseconds() / 60_000).alias("minutes since the event before"),
    )


def _events_schema(folder: Path) -> Schema:
    fields = (
        Field(name="activity", kind="category", names=ACTIVITIES),
        Field(name="transition", kind="category"),
        Field(name="amount", kind="number"),
        Field(name="minutes since the event before", kind="number"),
    )
    return Schema(fields=fields, record="event", entity="application", time="time")


QUESTION_TABLES: dict[str, UserTable] = {
    "diabetes130": UserTable(
        "Diabetes130, next admission",
        _returning,
        {},
        "which diagnoses will be recorded at the next admission that were not recorded before?",
        schema=_returning_schema,
    ),
    "bpic2012": UserTable(
        "BPIC 2012, next event",
        _events,
        {},
        "which activity comes next in a loan application, of those that have not occurred in it yet?",
        schema=_events_schema,
    ),
}
