"""MIMIC-III (PhysioNet, credentialed; its 100-patient demo is open): hospital admissions of intensive-care patients.

Task `mortality`: a patient's admissions in order; did the patient die in the last one?
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from tefm.base.errors import InputError, did_you_mean
from tefm.datasets.diabetes130 import Dataset
from tefm.tables.grouping import by_entity
from tefm.tables.mappers import most_frequent
from tefm.tables.readers.table import open_table
from tefm.tables.schema import Schema
from tefm.tables.sequences import balance

SOURCE = (
    "Johnson, Pollard, Mark: MIMIC-III Clinical Database, PhysioNet, 2016 (credentialed; the demo is under ODbL 1.0); "
    "Johnson et al., Scientific Data 3, 2016, 160035"
)


def mimic3(folder: str | Path, *, balanced: bool = True, seed: int = 0) -> Dataset:
    """The admissions in a folder of PhysioNet's CSV or CSV.gz files, full or demo, with the mortality task.

    Classes are balanced 1:1, as in the paper, unless `balanced=False`. A record has the paper's 458 slots if the
    training rows have enough codes:

    - 8 structured: admission type, insurance, ethnicity, first care unit, number of ICU stays, days in hospital,
      days in ICU, number of drugs;
    - the 200 most frequent diagnoses and the 100 most frequent procedures (ICD-9 codes);
    - the 150 most frequent drugs.

    As in the paper, lengths of stay, ICD codes and drugs are those of the whole admission, the last one included.
    They are complete only at discharge: the task is to recognise an outcome from its record, not to predict it in
    advance.

    The tables read are ADMISSIONS, ICUSTAYS, DIAGNOSES_ICD, PROCEDURES_ICD, PRESCRIPTIONS, D_ICD_DIAGNOSES and
    D_ICD_PROCEDURES.

    >>> data = mimic3("mimic-iii-clinical-database-1.4")  # doctest: +SKIP
    """
    tables = _Tables(Path(folder).expanduser())
    code = pl.col("icd9_code").str.strip_chars()
    # MIMIC writes the same drug as LORazepam, Lorazepam and "Lorazepam "
    drug = pl.col("drug").str.strip_chars().str.replace_all(r"\s+", " ").str.to_lowercase()
    lists = {
        "diagnoses": tables.lists("DIAGNOSES_ICD", code.alias("diagnoses")),
        "procedures": tables.lists("PROCEDURES_ICD", code.alias("procedures")),
        "drugs": tables.lists("PRESCRIPTIONS", drug.alias("drugs")),
    }
    frame = _admissions(tables)
    for side in (_icu_stays(tables), *lists.values()):
        frame = frame.join(side, on="hadm_id", how="left", maintain_order="left")
    schema = Schema.load(Path(__file__).with_suffix(".yaml"))
    fields = []
    for field in schema.fields:
        table = {"diagnoses": "D_ICD_DIAGNOSES", "procedures": "D_ICD_PROCEDURES"}.get(field.name)
        names = tables.titles(table, lists[field.name][field.name], field.limit) if table else field.names
        fields.append(field.model_copy(update={"names": names}))
    schema = schema.model_copy(update={"fields": tuple(fields)})
    sequences = by_entity(frame, schema, file=str(tables.path("ADMISSIONS")))
    if balanced:
        sequences = sequences.select(balance(sequences, seed=seed))
    return Dataset("mimic3", frame, schema, sequences, SOURCE)


def _admissions(tables: _Tables) -> pl.DataFrame:
    frame = tables.read(
        "ADMISSIONS",
        ("subject_id", "hadm_id", "admittime", "dischtime", "admission_type", "insurance", "ethnicity",
         "hospital_expire_flag"),
    )  # fmt: skip
    file = tables.path("ADMISSIONS")
    frame = frame.with_columns(_times(frame["admittime"], file), _times(frame["dischtime"], file))
    died = pl.col("hospital_expire_flag").replace_strict({"0": "survived", "1": "died"}, default=None)
    days = (pl.col("dischtime") - pl.col("admittime")).dt.total_minutes() / (24 * 60)
    return frame.with_columns(days.round(1).alias("hospital_days"), died.alias("outcome"))


def _icu_stays(tables: _Tables) -> pl.DataFrame:
    """Per admission: the number of ICU stays, their days in total, and the unit of the first one."""
    stays = tables.read("ICUSTAYS", ("hadm_id", "intime", "los", "first_careunit"))
    days = pl.col("los").cast(pl.Float64, strict=False)
    return (
        stays.sort("intime", maintain_order=True)
        .group_by("hadm_id", maintain_order=True)
        .agg(
            pl.col("first_careunit").first(),
            pl.len().alias("icu_stays"),
            # a stay that is still open has no length, and the sum of nothing would be 0 days
            pl.when(days.count() > 0).then(days.sum().round(1)).alias("icu_days"),
        )
    )


def _times(text: pl.Series, file: Path) -> pl.Series:
    times = text.str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False)
    unread = times.is_null() & text.is_not_null()
    if unread.any():
        raise InputError(
            f"{unread.sum()} of {len(text)} rows have a time that cannot be parsed",
            file=file,
            column=text.name,
            value=text.filter(unread)[0],
            remedy="MIMIC-III writes times like 2164-10-23 21:09:00; unpack the original file again",
        )
    return times


@dataclass(frozen=True)
class _Tables:
    """The files of the folder; file and column names may be in upper or lower case."""

    folder: Path

    def path(self, table: str) -> Path:
        if not self.folder.is_dir():
            raise InputError("no such folder", file=self.folder, remedy="give the folder with MIMIC-III's CSV files")
        files = {path.name.lower(): path for path in sorted(self.folder.iterdir()) if path.is_file()}
        names = (f"{table}.csv", f"{table}.csv.gz")
        for name in names:
            if name.lower() in files:
                return files[name.lower()]
        raise InputError(
            f"a table of MIMIC-III is missing: neither {' nor '.join(names)} is in the folder",
            file=self.folder,
            remedy=f"the folder contains: {', '.join(path.name for path in files.values()) or 'no files'}",
        )

    def read(self, table: str, columns: Sequence[str]) -> pl.DataFrame:
        """These columns as text, under their lower-case names."""
        source = open_table(self.path(table))
        names = {name.lower(): name for name in source.columns}
        missing = [column for column in columns if column not in names]
        if missing:
            raise InputError(
                f"{table} has no column {', '.join(map(repr, missing))}; expected: {', '.join(columns)}",
                file=source.name,
                column=missing[0],
                remedy=did_you_mean(missing[0], names),
            )
        return source.frame([names[column] for column in columns]).rename(str.lower)

    def lists(self, table: str, value: pl.Expr) -> pl.DataFrame:
        """A long table as one list of distinct values per admission, in the file's order."""
        pairs = self.read(table, ("hadm_id", *value.meta.root_names())).select("hadm_id", value).drop_nulls()
        return pairs.unique(maintain_order=True).group_by("hadm_id", maintain_order=True).all()

    def titles(self, table: str, lists: pl.Series, top: int) -> dict[str, str]:
        """Titles of the frequent codes: three times as many as used, as training rows may rank them differently."""
        frequent = most_frequent(Counter(lists.explode().drop_nulls()), 3 * top)
        titles = dict(self.read(table, ("icd9_code", "long_title")).drop_nulls().rows())
        return {code: titles[code] for code in frequent if code in titles}
