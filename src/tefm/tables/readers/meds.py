"""MEDS folders (Medical Event Data Standard): events in `data/`, read shard by shard, as one table of records.

A record is a visit or a window of time. A subject's events lie together in one file, as the standard demands; so only a
few subjects are in memory at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from tefm.base.errors import InputError, did_you_mean, listed
from tefm.base.progress import log
from tefm.tables.readers.arrow import parquet_files
from tefm.tables.readers.source import Table, before_last_run, explaining, local_path, whole_runs
from tefm.tables.schema import Field, Lookup, MedsRecords, Schema

#: The columns of records that are not vocabularies or codes. `days` is how long a record lasts, `days_since` the time
#: since the subject's previous one ended.
SUBJECT, TIME, LABEL = "subject_id", "time", "label"
FIXED = {SUBJECT: pl.Int64, TIME: pl.Datetime("us"), "events": pl.UInt32, "days": pl.Float64, "days_since": pl.Float64}
BIRTH = "MEDS_BIRTH"
DAY, YEAR = timedelta(days=1), timedelta(days=365.25)
#: Events that are turned into records at a time, about.
EVENTS = 1 << 18
TYPES: dict[str, pl.DataType | type[pl.DataType]] = {
    SUBJECT: pl.Int64,
    TIME: pl.Datetime("us"),
    "code": pl.String,
    "numeric_value": pl.Float32,
}
#: Columns that name the visit of an event, as converters of well-known databases call it.
VISITS = ("visit_id", "hadm_id", "encounter_id", "visit_occurrence_id", "stay_id")
#: What begins a visit, as they write it.
STARTS = ("HOSPITAL_ADMISSION", "ADMISSION", "VISIT", "Visit", "ENCOUNTER", "ENCOUNTER_START")
CODES = Path("metadata") / "codes.parquet"
#: What a code begins with: DIAGNOSIS of DIAGNOSIS//ICD10CM//I10.
VOCABULARY = pl.col("code").str.split("//").list.first().alias("vocabulary")


def is_meds(folder: Path) -> bool:
    """Whether a folder has the layout of the standard."""
    metadata = folder / "metadata"
    return (folder / "data").is_dir() and any((metadata / name).is_file() for name in ("dataset.json", "codes.parquet"))


def open_meds(folder: Path, labels: str | None, how: MedsRecords | None) -> Table:
    """The records of a MEDS folder; `labels` is a label file or folder: subjects, prediction times and labels."""
    files = parquet_files(folder / "data")
    how = _resolved(files, how or MedsRecords(), folder)
    cohort = None if labels is None else _labels(local_path(labels))
    names = [*TYPES, *([how.visit] if how.records == "visit" and how.visit is not None else [])]
    empty = records_of(_events(pl.DataFrame(schema=TYPES), names), how, cohort)

    def read(columns: list[str], _: int) -> Iterator[pl.DataFrame]:
        for events in _whole_subjects(files, names):
            yield records_of(events, how, cohort, columns)

    return Table(str(folder), empty, read, meds=how)


# ---- events ---------------------------------------------------------------------------------------------------------


def _whole_subjects(files: Sequence[Path], names: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Events in frames that no subject crosses; a subject in two places is an error, as it would be torn apart."""
    seen: set[int] = set()

    def checked(frame: pl.DataFrame, file: Path) -> pl.DataFrame:
        runs = frame[SUBJECT].rle().struct.field("value")
        subjects = set(runs.to_list())
        twice = seen & subjects or {subject for subject, count in Counter(runs.to_list()).items() if count > 1}
        if twice or None in subjects:
            raise InputError(
                "the events of a subject are not together, as MEDS requires" if twice else "an event has no subject",
                file=file,
                column=SUBJECT,
                value=min(twice) if twice else None,
                remedy="sort the shards by subject_id and time, with each subject in one file",
            )
        seen.update(subjects)
        return frame

    for file in files:
        for frame in whole_runs(_batches(file, names), EVENTS, lambda events: before_last_run(events[SUBJECT])):
            yield checked(frame, file)


def _batches(file: Path, names: Sequence[str]) -> Iterator[pl.DataFrame]:
    with explaining(file, "Parquet"), pq.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20) as opened:
        there = opened.schema_arrow.names
        needed = [name for name in (SUBJECT, TIME, "code") if name in names]
        _refuse_missing("shard", there, needed, file, "; events have subject_id, time, code, numeric_value")
        for batch in opened.iter_batches(batch_size=EVENTS, columns=[name for name in names if name in there]):
            yield _events(pl.DataFrame(batch), names)


def _refuse_missing(what: str, columns: Sequence[str], needed: Sequence[str], file: Path, hint: str = "") -> None:
    missing = [name for name in needed if name not in columns]
    if missing:
        problem, remedy = f"not a MEDS {what}: the column {missing[0]!r} is missing", f"it has {listed(columns)}{hint}"
        raise InputError(problem, file=file, column=missing[0], remedy=remedy)


def _events(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """The named columns in the types of the standard; an optional one that is not there is null."""
    return frame.select(
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(TYPES.get(name, pl.String)).alias(name)
        for name in names
    )


# ---- what the folder has --------------------------------------------------------------------------------------------


def _resolved(files: Sequence[Path], how: MedsRecords, folder: Path) -> MedsRecords:
    """The settings, with what they leave open: it takes one pass over the codes."""
    columns = pq.read_schema(files[0]).names
    if how.records == "visit" and how.visit is not None and how.visit not in columns:
        problem, remedy = "the events do not have the column that names a visit", did_you_mean(how.visit, columns)
        raise InputError(problem, file=files[0], column=how.visit, remedy=remedy)
    if how.visit is None and how.starts is None and how.records == "visit":
        how = how.model_copy(update={"visit": next((name for name in VISITS if name in columns), None)})
    needs_start = how.records == "visit" and how.visit is None and how.starts is None
    if how.sets is not None and how.numbers is not None and how.age is not None and not needs_start:
        return how
    codes = _codes(files)
    born = begins_with(pl.col("code"), (BIRTH,))
    if needs_start:
        starts = [name for name in STARTS if codes.select(begins_with(pl.col("code"), (name,)).any()).item()]
        if not starts:
            known = codes["vocabulary"].unique().sort().to_list()
            raise InputError(
                "no setting says where a visit begins",
                file=folder,
                remedy="give meds: {starts: [CODE]} or meds: {visit: COLUMN}, or make windows with "
                f"meds: {{records: window, window: 7d}}; codes begin with {listed(known)}",
            )
        how = how.model_copy(update={"starts": tuple(starts)})
    frequent = codes.filter((pl.col("values") > 0) & ~born).sort("values", "code", descending=[True, False])
    numbers = how.numbers if how.numbers is not None else tuple(frequent["code"].head(how.most).sort())
    others = codes.filter(~pl.col("code").is_in(numbers) & ~born)
    sets = how.sets if how.sets is not None else tuple(others["vocabulary"].unique().sort())
    age = how.age if how.age is not None else bool(codes.select(born.any()).item())
    return how.model_copy(update={"sets": sets, "numbers": numbers, "age": age})


def _codes(files: Sequence[Path]) -> pl.DataFrame:
    """All codes, and how often each has a numeric value."""
    codes = pl.DataFrame(schema={"code": pl.String, "values": pl.Int64})
    for file in files:
        for batch in _batches(file, ("code", "numeric_value")):
            values = batch.select("code", pl.col("numeric_value").is_not_nan().cast(pl.Int64).alias("values"))
            codes = pl.concat([codes, values]).group_by("code").agg(pl.col("values").sum())
    return codes.drop_nulls("code").with_columns(VOCABULARY)


# ---- labels ---------------------------------------------------------------------------------------------------------


def _labels(path: Path) -> pl.DataFrame:
    """The prediction time and the label of each subject; of several, the latest."""
    if not path.exists():
        raise InputError(
            "there is no label file", file=path, remedy="for a MEDS folder, `query` is the path of a label file"
        )
    files = parquet_files(path) if path.is_dir() else [path]
    with explaining(path, "Parquet"):
        labels = pl.concat([pl.DataFrame(pq.read_table(file)) for file in files], how="diagonal_relaxed")
    _refuse_missing("label file", labels.columns, (SUBJECT, "prediction_time"), path)
    kinds = ("categorical_value", "boolean_value", "integer_value")
    value = next((name for name in kinds if name in labels.columns and labels[name].null_count() < labels.height), None)
    if value is None and "float_value" in labels.columns:
        raise InputError(
            "the labels are numbers, not classes", file=path, column="float_value", remedy="cut them into classes first"
        )
    columns = [pl.col(SUBJECT).cast(pl.Int64), pl.col("prediction_time").cast(pl.Datetime("us"))]
    labels = labels.select(*columns, *([] if value is None else [pl.col(value).alias(LABEL)]))
    latest = labels.sort("prediction_time", maintain_order=True).unique(SUBJECT, keep="last", maintain_order=True)
    if several := labels.height - latest.height:
        log.warning(
            f"{several:,} of {labels.height:,} label rows are left out: of several for a subject, the latest counts"
        )
    return latest


def set_column(name: str) -> str:
    """The column of a vocabulary.

    >>> set_column("LAB"), set_column("time")
    ('LAB', 'time (codes)')
    """
    return f"{name} (codes)" if name in (*FIXED, LABEL, "age") else name


def begins_with(code: pl.Expr, prefixes: tuple[str, ...]) -> pl.Expr:
    """Whether a code is one of these, or of a vocabulary that is."""
    return pl.any_horizontal(*((code == prefix) | code.str.starts_with(f"{prefix}//") for prefix in prefixes))


def records_of(
    events: pl.DataFrame, how: MedsRecords, cohort: pl.DataFrame | None = None, columns: Sequence[str] | None = None
) -> pl.DataFrame:
    """The records of subjects, in the order of the subjects and of time; only these columns, or all.

    `cohort` has a row per subject: up to which `prediction_time` its events count, and the label.
    """
    code = pl.col("code")
    born = events.filter(begins_with(code, (BIRTH,))).group_by(SUBJECT).agg(pl.col(TIME).min().alias("born"))
    events = events.filter(~begins_with(code, (BIRTH,))).with_columns(VOCABULARY)
    if cohort is not None:
        events = events.join(cohort, on=SUBJECT, how="inner", maintain_order="left")
        events = events.filter(pl.col(TIME).is_null() | (pl.col(TIME) <= pl.col("prediction_time")))
    order = events.select(pl.col(SUBJECT).unique(maintain_order=True)).with_row_index("order")
    static, timed = events.filter(pl.col(TIME).is_null()), events.filter(pl.col(TIME).is_not_null())
    timed = _with_record(timed.sort(TIME, maintain_order=True), how)
    sets, numbers = _fields(how, columns)
    fields = [*sets.values(), *numbers.values()]
    records = timed.group_by(SUBJECT, "record", maintain_order=True).agg(
        pl.col(TIME).min(), pl.col(TIME).max().alias("end"), pl.len().cast(pl.UInt32).alias("events"), *fields
    )
    records = records.join(order, on=SUBJECT, how="left").sort("order", TIME, "end", maintain_order=True)
    static = static.group_by(SUBJECT, maintain_order=True).agg(*fields)
    records = _with_static(records, static, list(sets), list(numbers))
    since = records.select(pl.col(TIME) - pl.col("end").shift(1).over(SUBJECT)).to_series()
    records = records.with_columns(
        _in(DAY, records["end"] - records[TIME]).alias("days"),
        _in(DAY, since).clip(lower_bound=0).alias("days_since"),
    )
    if how.age:
        records = records.join(born, on=SUBJECT, how="left", maintain_order="left")
        records = records.with_columns(_in(YEAR, records[TIME] - records["born"]).alias("age"))
    label = []
    if cohort is not None and LABEL in cohort.columns:
        records = records.join(cohort.select(SUBJECT, LABEL), on=SUBJECT, how="left", maintain_order="left")
        label = [LABEL]
    return records.select(columns or [*FIXED, *(["age"] if how.age else []), *sets, *numbers, *label])


def _in(unit: timedelta, durations: pl.Series) -> pl.Series:
    """Durations in days or years; not divided by polars, where the last digit depends on the length of the frame."""
    microseconds = durations.dt.total_microseconds().cast(pl.Float64).to_numpy()
    return pl.Series(microseconds / (unit / timedelta(microseconds=1))).fill_nan(None)


def _with_record(timed: pl.DataFrame, how: MedsRecords) -> pl.DataFrame:
    """Timed events, sorted by time, with the record that each belongs to; those before the first visit are left out."""
    time = pl.col(TIME)
    if how.records == "window":
        return timed.with_columns((time.to_physical() // int(how.span / timedelta(microseconds=1))).alias("record"))
    if how.visit is None:
        assert how.starts is not None, "what begins a visit is known"
        starts = timed.filter(begins_with(pl.col("code"), how.starts)).select(SUBJECT, TIME, record=TIME).unique()
        named = timed.with_columns(pl.lit(None, pl.Datetime("us")).alias("record"))
    else:
        named = timed.with_columns(pl.col(how.visit).cast(pl.String).alias("record"))
        starts = named.drop_nulls("record").group_by(SUBJECT, "record").agg(time.min())
    latest = timed.select(SUBJECT, TIME).join_asof(
        starts.sort(TIME, "record"), on=TIME, by=SUBJECT, strategy="backward", check_sortedness=False
    )
    return named.with_columns(pl.col("record").fill_null(latest["record"])).drop_nulls("record")


def _fields(how: MedsRecords, columns: Sequence[str] | None) -> tuple[dict[str, pl.Expr], dict[str, pl.Expr]]:
    """A list of codes per vocabulary, and a value per code that is a number: such a code is in no list."""
    code, value = pl.col("code"), pl.col("numeric_value")
    others = ~code.is_in(how.numbers or ())
    sets = {
        set_column(name): code.filter((pl.col("vocabulary") == name) & others).unique().sort().alias(set_column(name))
        for name in how.sets or ()
    }
    numbers = {
        name: getattr(value.filter((code == name) & value.is_not_null()).cast(pl.Float64), how.value)().alias(name)
        for name in how.numbers or ()
    }

    def wanted(fields: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
        return {name: field for name, field in fields.items() if columns is None or name in columns}

    return wanted(sets), wanted(numbers)


def _with_static(
    records: pl.DataFrame, static: pl.DataFrame, sets: Sequence[str], numbers: Sequence[str]
) -> pl.DataFrame:
    """Records with the static codes and values of their subjects."""
    records = records.join(static, on=SUBJECT, how="left", suffix=" (static)", maintain_order="left")
    both = [
        pl.concat_list(pl.col(name), pl.col(f"{name} (static)").fill_null([])).list.unique().list.sort()
        for name in sets
    ]
    return records.with_columns(*both, *(pl.col(name).fill_null(pl.col(f"{name} (static)")) for name in numbers))


def with_meds(schema: Schema, how: MedsRecords, folder: Path) -> Schema:
    """The schema with the settings of the records, and the descriptions of `metadata/codes.parquet`."""
    path = folder / CODES
    described = path.is_file() and "description" in pq.read_schema(path).names
    names: dict[str, str] = {}
    if described:
        codes = pl.DataFrame(pq.read_table(path, columns=["code", "description"])).drop_nulls()
        names = dict(codes.filter(pl.col("code").is_in(how.numbers or ())).rows())
    lookup = Lookup(table=str(path.absolute()), key="code", name="description")
    sets = set(map(set_column, how.sets or ()))

    def named(field: Field) -> Field:
        if field.name in names:
            return field.model_copy(update={"title": names[field.name]})
        return field.model_copy(update={"lookup": lookup}) if described and field.name in sets else field

    record = "visit" if how.records == "visit" else "period"
    return schema.model_copy(update={"meds": how, "record": record, "fields": tuple(map(named, schema.fields))})
