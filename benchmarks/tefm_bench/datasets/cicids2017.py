"""CIC-IDS2017 (Canadian Institute for Cybersecurity): network flows, benign or of one of many attacks.

Both releases have the same 77 statistics per flow: the official MachineLearningCVE files, and the corrected
("improved") one, whose columns have other names. Tasks `ddos` and `portscan`: is a segment of consecutive flows
an attack? Task `attack`: which one?
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

import polars as pl

from tefm.base.errors import InputError, SettingsError
from tefm.datasets.diabetes130 import Dataset
from tefm.tables.grouping import by_window
from tefm.tables.readers.source import explaining
from tefm.tables.readers.table import Table, open_table
from tefm.tables.schema import MISSING_WORDS, Field, Schema
from tefm.tables.words import numbers_of

SOURCE = (
    "Sharafaldin, Lashkari, Ghorbani: Toward Generating a New Intrusion Detection Dataset, ICISSP 2018; "
    "the corrected release: Liu, Engelen, Lynar, Essam, Joosen: Error Prevalence in NIDS Datasets, IEEE CNS 2022"
)

Task = Literal["ddos", "portscan", "attack"]
SegmentLabel = Literal["last", "any"]

#: The 77 statistics: the official name, the one in the corrected release where it differs in more than case, the title.
STATISTICS = list(csv.DictReader(Path(__file__).with_suffix(".csv").read_text(encoding="utf-8").splitlines()))
CORRECTED = {row["name"]: row["corrected"] for row in STATISTICS if row["corrected"]}
FIELDS = tuple(
    Field(name=row["name"], kind="number", title=row["title"] or None, group=row["group"], unit=row["unit"] or None)
    for row in STATISTICS
)
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday")


def cicids2017(
    source: str | Path, *, task: Task = "ddos", window: int = 10, segment_label: SegmentLabel = "last"
) -> Dataset:
    """The flows in a file (CSV, CSV.gz or Parquet) or in a folder with the files of one release.

    `ddos` and `portscan` keep the flows labelled benign or with that attack; from a folder they read the file with
    the attack in its name, or the corrected release's file of the whole Friday. `attack` keeps all flows with their
    labels, including the "… - Attempted" ones of the corrected release. Flows are in the order of the files, by day.

    Sequences are segments of `window` consecutive flows, without overlap. A segment has the label of its last flow;
    with `segment_label="any"` it has its first label that is not benign. The paper does not say which one it uses.

    >>> data = cicids2017("MachineLearningCVE", task="portscan")  # doctest: +SKIP
    """
    for name, value, options in (("task", task, Task), ("segment_label", segment_label, SegmentLabel)):
        if value not in get_args(options):
            raise SettingsError(f"not a valid {name}", value=value, remedy=f"choose one of {get_args(options)}")
    location = Path(source).expanduser()
    label_counts: Counter[str] = Counter()
    frames = []
    for path in _files(location, task):
        for batch in _flows(_open(path)):
            label_counts.update(batch["label"].drop_nulls())
            frames.append(_of_task(batch, task))
    frame = pl.concat(frames) if frames else pl.DataFrame()
    if not frame.height:
        labels = ", ".join(f"{label} ({count:,})" for label, count in label_counts.most_common()) or "none"
        raise InputError(f"no flow belongs to the task {task!r}", file=location, remedy=f"labels found: {labels}")
    schema = Schema(fields=FIELDS, record="flow", label="label")
    benign = "BENIGN" if task == "attack" else "benign"
    background = benign if segment_label == "any" else None
    sequences = by_window(frame, schema, window, background=background, file=str(location))
    return Dataset(f"cicids2017-{task}", frame, schema, sequences, SOURCE)


def _of_task(flows: pl.DataFrame, task: Task) -> pl.DataFrame:
    if task == "attack":
        return flows.drop_nulls("label")
    name = pl.col("label").str.to_lowercase()  # PortScan in one release, Portscan in the other
    label = pl.when(name == task).then(pl.lit("attack")).when(name == "benign").then(pl.lit("benign"))
    return flows.with_columns(label.alias("label")).drop_nulls("label")


# ---- files ----------------------------------------------------------------------------------------------------------


def _files(location: Path, task: Task) -> list[Path]:
    """The files to read, in time order."""
    if not location.is_dir():
        return [location]
    paths = sorted(path for path in location.iterdir() if path.is_file() and not path.name.startswith("."))
    tables = [path for path in paths if path.name.lower().endswith((".csv", ".csv.gz"))]
    tables = tables or [path for path in paths if path.name.lower().endswith((".parquet", ".pq"))]
    if task != "attack":
        of_task = [path for path in tables if task in path.name.lower()]
        tables = of_task or [path for path in tables if _is_whole_friday(path.name.lower())]
    if not tables:
        contents = ", ".join(path.name for path in paths) or "no files"
        raise InputError(
            f"no file is for the task {task!r}; the folder contains {contents}",
            file=location,
            remedy="give the path of the file, or a folder with the official names, as in "
            "Friday-WorkingHours-Afternoon-DDos.pcap_ISCX.csv",
        )
    return sorted(tables, key=_weekday)


def _is_whole_friday(name: str) -> bool:
    return name.startswith("friday") and "morning" not in name and "afternoon" not in name


def _weekday(path: Path) -> tuple[int, bool, str]:
    """A sort key by day and half of the day; names without a day come last, in alphabetical order."""
    name = path.name.lower()
    day = next((number for number, day in enumerate(DAYS) if name.startswith(day)), len(DAYS))
    return day, "afternoon" in name, name


def _open(path: Path) -> Table:
    """The official CSVs have the column `Fwd Header Length` twice, with the same values: the second is renamed."""
    if not path.is_file() or not path.name.lower().endswith((".csv", ".csv.gz")):
        return open_table(path)
    with explaining(path, "CSV"):
        header = pl.read_csv(path, n_rows=0, infer_schema=False, encoding="utf8-lossy").columns
    return open_table(path, column_names=[name.strip() for name in header] if len(header) > 1 else None)


def _flows(table: Table) -> Iterator[pl.DataFrame]:
    """The 77 statistics and the label under their official names, batch by batch."""
    by_lower_case = {name.lower(): name for name in table.columns}
    columns, missing = {}, []
    for field in FIELDS:
        spellings = [field.name, *([CORRECTED[field.name]] if field.name in CORRECTED else [])]
        matches = [by_lower_case[name.lower()] for name in spellings if name.lower() in by_lower_case]
        if matches:
            columns[field.name] = matches[0]
        else:
            missing.append(" or ".join(map(repr, spellings)))
    label = by_lower_case.get("label") or by_lower_case.get("labels")
    if label is None:
        missing.append("'Label'")
    if missing or label is None:
        raise InputError(
            f"not flows of CIC-IDS2017: {len(missing)} of {len(FIELDS) + 1} columns are missing, "
            f"{', '.join(missing[:5])}{' …' if len(missing) > 5 else ''}",
            file=table.name,
            remedy="give the CSV files of MachineLearningCVE, or the corrected release as CSV or Parquet",
        )
    for batch in table.batches([*columns.values(), label]):
        statistics = [
            pl.Series(field.name, numbers_of(batch[columns[field.name]], field, MISSING_WORDS, file=table.name))
            for field in FIELDS
        ]
        # the dash in "Web Attack – XSS" is a broken character in the official files
        text = batch[label].cast(pl.String).str.strip_chars().str.replace_all(r"[^ -~]+", "-")
        yield pl.DataFrame([*statistics, text.alias("label")])
