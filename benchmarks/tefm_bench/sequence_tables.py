"""Tables whose sequences are the subject: ICU stays in windows of hours, the next event of a case."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from tefm_bench.user_table import DRAWN, UserTable, file_of

#: What is measured once, at the start of a stay; −1 is missing.
STATIC = ("Age", "Gender", "Height", "ICUType")
#: Hours of a stay that are read.
HOURS = 48


def icu_stays(folder: Path, which: str, hours: int) -> pl.DataFrame:
    """The first 48 hours of ICU stays: one row per window, with the mean of what was measured in it.

    What is measured once stands in every row, as in a table that was joined; windows without a value are rows too.
    """
    read = pl.read_parquet(file_of(folder, f"physionet2012/set-{which}.parquet"))
    minutes = pl.col("Time").str.split(":").list.eval(pl.element().cast(pl.Int64))
    read = read.filter(pl.col("Parameter") != "RecordID").with_columns(
        hour=minutes.list.get(0) // hours * hours, start=pl.col("Time") == "00:00"
    )
    once = pl.col("start") & pl.col("Parameter").is_in(STATIC)
    stays = read.filter(once & (pl.col("Value") >= 0)).pivot(
        on="Parameter", index="RecordID", values="Value", aggregate_function="first"
    )
    measured = read.filter(~pl.col("Parameter").is_in(STATIC) & (pl.col("Value") >= 0) & (pl.col("hour") < HOURS))
    wide = measured.pivot(on="Parameter", index=["RecordID", "hour"], values="Value", aggregate_function="mean")
    outcomes = pl.read_parquet(file_of(folder, f"physionet2012/Outcomes-{which}.parquet")).select(
        "RecordID", death=pl.when(pl.col("In-hospital_death") == 1).then(pl.lit("yes")).otherwise(pl.lit("no"))
    )
    grid = outcomes.join(pl.DataFrame({"hour": range(0, HOURS, hours)}, {"hour": pl.Int64}), how="cross")
    joined = grid.join(stays, on="RecordID", how="left").join(wide, on=["RecordID", "hour"], how="left")
    columns = sorted(set(joined.columns) - {"RecordID", "hour", "death"})
    return joined.sort("RecordID", "hour").select("RecordID", "hour", *columns, "death")


def loan_events(folder: Path) -> pl.DataFrame:
    """The events of all loan applications in the order of their times, numbered from 0 within each."""
    when = pl.col("time:timestamp").str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%:z", time_zone="UTC")
    events = pl.read_parquet(file_of(folder, "bpic2012/events.parquet")).select(
        pl.col("case:concept:name").alias("application"),
        when.alias("time"),
        pl.col("concept:name").alias("event"),
        pl.col("lifecycle:transition").alias("transition"),
        pl.col("org:resource").alias("resource"),
        pl.col("case:AMOUNT_REQ").cast(pl.Float64).alias("amount"),
    )
    number = pl.int_range(pl.len()).over("application")
    return events.sort("time", maintain_order=True).with_columns(number=number)


def loans_up_to_one_event(folder: Path) -> pl.DataFrame:
    """The events of every loan application up to one drawn at random, the activity after it, and when the case ends."""
    events = loan_events(folder).with_columns(
        next=pl.col("event").shift(-1).over("application"), ends=pl.col("time").max().over("application")
    )
    counts = events.group_by("application", maintain_order=True).len()
    drawn = np.random.default_rng(DRAWN).integers(0, np.maximum(1, counts["len"].to_numpy() - 1))
    counts = counts.select("application", drawn=pl.Series(drawn))
    asked = events.join(counts, on="application", maintain_order="left")
    return asked.filter((pl.col("number") <= pl.col("drawn")) & pl.col("next").is_not_null()).drop("number", "drawn")


def next_activity(folder: Path) -> pl.DataFrame:
    """A table without the end of the case, which is not known at that moment."""
    return loans_up_to_one_event(folder).drop("ends")


def _stays(hours: int) -> UserTable:
    return UserTable(
        f"PhysioNet 2012, {hours}-hour windows",
        partial(icu_stays, which="a", hours=hours),
        {"entity": "RecordID", "time": "hour", "label": "death"},
        f"does a patient die in hospital? From the first 48 hours in the ICU as {HOURS // hours} records; models are"
        " fitted and chosen on set-a and scored on set-b",
        other=partial(icu_stays, which="b", hours=hours),
        other_title=f"PhysioNet 2012, {hours}-hour windows, set-b",
    )


SEQUENCE_TABLES: dict[str, UserTable] = {
    "icu_4h": _stays(4),
    "icu_1h": _stays(1),
    "bpic2012_next": UserTable(
        "BPIC 2012, next activity",
        next_activity,
        {"entity": "application", "time": "time", "label": "next", "split": {"by": "time"}},
        "which activity comes next? One moment of every application, drawn at random; the last tenth is tested",
    ),
}


def write_synthetic_stays(folder: Path, stays: int = 60) -> None:
    """Both sets in miniature: made-up measurements, with a pulse that rises before a death."""
    rng = np.random.default_rng(0)
    (folder / "physionet2012").mkdir(parents=True, exist_ok=True)
    for which in "ab":
        rows, deaths = [], np.arange(stays) % 2
        numbers = np.arange(stays) + stays * (which == "b")
        for stay, died in zip(numbers.tolist(), deaths.tolist(), strict=True):
            rows += [(stay, "00:00", name, float(rng.integers(1, 90))) for name in ("RecordID", *STATIC)]
            for hour in range(0, HOURS, 2):
                pulse = 80 + died * hour + rng.normal()
                rows += [
                    (stay, f"{hour:02}:30", "HR", pulse),
                    (stay, f"{hour:02}:40", "GCS", float(rng.integers(3, 15))),
                ]
        outcomes = {"RecordID": numbers, "In-hospital_death": deaths}
        pl.DataFrame(outcomes).write_parquet(folder / f"physionet2012/Outcomes-{which}.parquet")
        measured = pl.DataFrame(rows, schema=["RecordID", "Time", "Parameter", "Value"], orient="row")
        measured.write_parquet(folder / f"physionet2012/set-{which}.parquet")
