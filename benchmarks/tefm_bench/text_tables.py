"""Tables with free text: what each is read from, its fields and texts, and how it is split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base.errors import InputError
from tefm.tables.schema import Schema

#: The shares of training, validation and test.
SHARES = (0.8, 0.1, 0.1)


@dataclass(frozen=True)
class TextTable:
    """One table whose rows are sequences of one record."""

    title: str
    read: Callable[[Path], pl.DataFrame]
    schema: Schema
    #: at random, by a column whose values are in one part only, or by a column that orders the rows
    split: Literal["random", "group", "time"]
    by: str
    note: str
    #: the source, as `--data` calls it, whose folder the table is read from
    source: str = "tables"


def _parquet(folder: Path, name: str) -> pl.DataFrame:
    path = folder / name
    if not path.is_file():
        remedy = "give --data FOLDER, the folder of all user tables, with this file in it"
        raise InputError("the file of this table is missing", file=path, remedy=remedy)
    return pl.read_parquet(path)


def _reviews(folder: Path) -> pl.DataFrame:
    frame = _parquet(folder, "clothing_reviews/clothing_reviews.parquet")
    recommended = pl.when(pl.col("Recommended IND") == 1).then(pl.lit("yes")).otherwise(pl.lit("no"))
    return frame.with_columns(recommended.alias("recommended"))


def _vulnerabilities(folder: Path) -> pl.DataFrame:
    """With the year of the identifier and the days to fix it; without what is known only afterwards."""
    added, due = (pl.col(name).str.to_date("%Y-%m-%d") for name in ("dateAdded", "dueDate"))
    ransomware = pl.when(pl.col("knownRansomwareCampaignUse") == "Known").then(pl.lit("yes")).otherwise(pl.lit("no"))
    return _parquet(folder, "kev/kev.parquet").with_columns(
        pl.col("cveID").str.extract(r"CVE-(\d{4})").cast(pl.Int64).alias("year"),
        (due - added).dt.total_days().alias("days to fix"),
        ransomware.alias("ransomware"),
    )


REVIEWS = Schema.from_yaml("""
record: review
label: recommended
text: {Title: {tokens: 16}, Review Text: {tokens: 128}}
fields:
  Age: number
  Positive Feedback Count: number
  Division Name: category
  Department Name: category
  Class Name: category
""")
VULNERABILITIES = Schema.from_yaml("""
record: vulnerability
label: ransomware
text: {vulnerabilityName: {tokens: 24}, shortDescription: {tokens: 96}}
fields:
  vendorProject: category
  product: category
  year: number
  days to fix: number
  cwes: {kind: set, delimiter: ",", top: 60}
""")
_KNOWN = "is a vulnerability of the CISA KEV catalogue known to be used by ransomware?"

TEXT_TABLES: dict[str, TextTable] = {
    "clothing_reviews": TextTable(
        "Clothing reviews",
        _reviews,
        REVIEWS,
        "random",
        "",
        "does a customer recommend the item? Title and text of the review beside five fields, without the rating",
    ),
    "kev_vendors": TextTable(
        "CISA KEV, by vendor",
        _vulnerabilities,
        VULNERABILITIES,
        "group",
        "vendorProject",
        f"{_KNOWN} The vendors of the test part are in no other part",
    ),
    "kev_time": TextTable(
        "CISA KEV, by time",
        _vulnerabilities,
        VULNERABILITIES,
        "time",
        "dateAdded",
        f"{_KNOWN} The last tenth of the entries is tested",
    ),
}


def parts_of(table: TextTable, frame: pl.DataFrame, seed: int) -> NDArray[np.str_]:
    """The part of each row; with `time`, validation and test are the latest rows, whatever the seed."""
    rng, count = np.random.default_rng(seed), len(frame)
    if table.split == "group":
        return _by_group(frame[table.by].fill_null("").to_numpy(), rng)
    ranks = rng.permutation(count) if table.split == "random" else frame[table.by].rank("ordinal").to_numpy() - 1
    train, validation = SHARES[0] * count, (SHARES[0] + SHARES[1]) * count
    return np.where(ranks < train, "train", np.where(ranks < validation, "validation", "test"))


def _by_group(groups: NDArray[np.object_], rng: np.random.Generator) -> NDArray[np.str_]:
    """Groups in random order go to test and validation while they fit there, all others to training."""
    names, number_N = np.unique(groups, return_inverse=True)
    room = {"test": SHARES[2] * len(groups), "validation": SHARES[1] * len(groups), "train": float(len(groups))}
    size_G, part_G = np.bincount(number_N), np.full(len(names), "train", dtype="<U10")
    for group in rng.permutation(len(names)).tolist():
        part_G[group] = next(part for part in room if size_G[group] <= room[part])
        room[str(part_G[group])] -= size_G[group]
    return part_G[number_N]
