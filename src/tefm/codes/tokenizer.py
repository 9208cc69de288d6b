"""`RecordTokenizer`: the first stage as users see it. fit, encode, decode, save, load.

A table goes through the `Vectoriser` (records/) into slots and through the `SlotCoder` into codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tefm.base import __version__
from tefm.base.errors import ArtefactError, InputError, NotFittedError, SettingsError, did_you_mean
from tefm.base.files import check_writable, is_whole, read_manifest, refusing, replacing, write_json, write_manifest
from tefm.base.progress import Advance, progress
from tefm.base.settings import Preset
from tefm.base.training import ahead
from tefm.codes.coder import Codes, SlotCoder, load_coder, save_coder
from tefm.codes.config import MAX_ROWS, TokenizerConfig
from tefm.tables.chunks import write_parquet
from tefm.tables.columns import with_sides
from tefm.tables.grouping import in_buckets, role_column
from tefm.tables.infer import infer_schema
from tefm.tables.layout import Slots
from tefm.tables.readers.databases import is_postgresql
from tefm.tables.readers.meds import is_meds
from tefm.tables.readers.source import local_path
from tefm.tables.readers.table import Table, open_table, parquet_files, table_files
from tefm.tables.schema import Schema
from tefm.tables.sequences import check_label
from tefm.tables.vectorise import Vectoriser
from tefm.tables.words import text_of

KIND = "tefm record tokenizer"
VECTORISER = "vectoriser.json"


class RecordTokenizer:
    """Records in, K small integers out, and back.

    >>> import polars as pl
    >>> from tefm import Field, RecordTokenizer, Schema
    >>> table = pl.DataFrame({"size": [1, 2, 3, 4] * 25, "colour": ["red", "green"] * 50})
    >>> schema = Schema(fields=(Field(name="size", kind="number", buckets=4), Field(name="colour", kind="category")))
    >>> tokenizer = RecordTokenizer(levels=2, entries=4, latent=8, hidden=16, steps=300).fit(table, schema)
    >>> codes = tokenizer.encode(table)
    >>> codes.shape
    (100, 2)
    >>> tokenizer.decode(codes[:2]).to_dicts()
    [{'size': 1.0, 'colour': 'red'}, {'size': 2.0, 'colour': 'green'}]
    """

    def __init__(
        self,
        config: TokenizerConfig | None = None,
        *,
        preset: Preset = "default",
        device: str | None = None,
        **settings: Any,
    ) -> None:
        if config is not None and settings:
            raise SettingsError("give either a config or single settings, not both", value=min(settings))
        self.coder = SlotCoder(config or TokenizerConfig.preset(preset, **settings), device=device)
        self.vectoriser_: Vectoriser | None = None

    @classmethod
    def of(cls, vectoriser: Vectoriser, coder: SlotCoder) -> RecordTokenizer:
        """A tokenizer made of two parts that have learned already."""
        tokenizer = cls(coder.config)
        tokenizer.coder, tokenizer.vectoriser_ = coder, vectoriser
        return tokenizer

    @property
    def config(self) -> TokenizerConfig:
        return self.coder.config

    @property
    def vectoriser(self) -> Vectoriser:
        if self.vectoriser_ is None:
            raise NotFittedError("this tokenizer is not fitted yet", remedy="call fit(table) or load(folder)")
        return self.vectoriser_

    @property
    def schema(self) -> Schema:
        return self.vectoriser.table_schema

    # ---- learning ---------------------------------------------------------------------------------------------

    def fit(
        self,
        source: Any,
        schema: Schema | None = None,
        *,
        validation: Any = None,
        task_aware: bool | None = None,
        checkpoint: str | Path | None = None,
    ) -> RecordTokenizer:
        """Learn slots and codes from the training rows of a table.

        `validation` is a table for early stopping; without one, a tenth of the entities (or rows) is held out.
        Codes are task-aware when the schema names a label, unless `task_aware=False`. With `checkpoint` (a file),
        an interrupted run resumes when the same call is made again.
        """
        table = open_table(source)
        schema = schema or infer_schema(table)
        if task_aware is None:
            task_aware = schema.label is not None and self.config.recipe == "ours"
        if task_aware and (schema.label is None or schema.label not in table.columns):
            raise InputError(
                "task-aware codes need the label",
                file=table.name,
                column=schema.label,
                remedy="name it under `label:` in the schema, or learn without it (task_aware=False, --unsupervised)",
            )
        if schema.entity is not None and schema.entity not in table.columns:
            remedy = did_you_mean(schema.entity, table.columns)
            raise InputError(
                "the entity column is not in the table", file=table.name, column=schema.entity, remedy=remedy
            )
        vectoriser = Vectoriser.fit(table, schema, seed=self.config.seed)
        x_ND, labels_N, groups_N = _training_rows(vectoriser, table, self.config.seed)
        if task_aware and labels_N is not None:
            labels_N = in_buckets(labels_N, schema, table.name)
            check_label(labels_N, column=schema.label, file=table.name)
        self.coder.fit(
            x_ND,
            vectoriser.layout,
            labels_N=labels_N if task_aware else None,
            groups_N=groups_N,
            validation_ND=None if validation is None else vectoriser.transform(validation),
            checkpoint=checkpoint,
        )
        self.vectoriser_ = vectoriser
        return self

    # ---- forward and backward ---------------------------------------------------------------------------------

    def encode(self, source: Any, *, absent: bool = False) -> Codes:
        """The codes of every record of a table; with `absent`, fields whose columns are missing are absent."""
        table = self.vectoriser.readable(source, absent=absent)
        parts = [codes_NK for codes_NK, _ in self.batches(table)]
        return np.concatenate(parts) if parts else np.zeros((0, self.coder.levels), dtype=np.uint16)

    def batches(self, source: Any, extra: Sequence[str] = ()) -> Iterator[tuple[Codes, pl.DataFrame]]:
        """Codes batch by batch, with the columns `extra` of the same rows; the next batch is read during encoding."""
        for slots_ND, frame in ahead(self.vectoriser.batches_with(source, extra)):
            yield self.coder.encode(slots_ND), frame

    def decode(self, codes_NK: NDArray[Any]) -> pl.DataFrame:
        """The most likely record of each code, one column per field."""
        return self.vectoriser.inverse(self.coder.decode(codes_NK))

    # ---- on disk ----------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write the tokenizer as one folder: config, vectoriser, weights, and a manifest that seals them."""
        with replacing(folder, ours=self.is_saved) as temporary:
            save_coder(self.coder, temporary)
            write_json(temporary / VECTORISER, self.vectoriser.model_dump(mode="json"))
            write_manifest(temporary, KIND, version=__version__, identity=self.coder.identity)
        return Path(folder)

    @staticmethod
    def is_saved(folder: Path) -> bool:
        """Whether `folder` contains a complete tokenizer."""
        return is_whole(folder, KIND)

    @classmethod
    def load(cls, folder: str | Path, *, device: str | None = None) -> RecordTokenizer:
        """Read a saved tokenizer; a damaged or foreign folder is refused with the reason."""
        folder = Path(folder)
        read_manifest(folder, KIND)
        coder, vectoriser = load_coder(folder, device=device), load_vectoriser(folder)
        if vectoriser.layout != coder.layout:
            raise ArtefactError(
                "the vectoriser and the codes of this tokenizer do not belong together",
                file=folder,
                remedy="copy the whole folder, or save it again",
            )
        return cls.of(vectoriser, coder)


def kept_roles(schema: Schema, table: Table) -> list[str]:
    """The columns that are kept beside the codes: entity, time and label, where the table has them."""
    return [name for name in (schema.entity, schema.time, schema.label) if name is not None and name in table.columns]


def load_vectoriser(folder: Path) -> Vectoriser:
    """How the tables of a saved tokenizer become slots, without its weights."""
    with refusing(folder, "vectoriser"):
        return Vectoriser.model_validate_json((folder / VECTORISER).read_text(encoding="utf-8")).closed()


def _training_rows(
    vectoriser: Vectoriser, table: Table, seed: int
) -> tuple[Slots, NDArray[Any] | None, NDArray[Any] | None]:
    """Slots, labels and entities of the training rows; a uniform sample if the table has more than `MAX_ROWS`."""
    schema, rng = vectoriser.table_schema, np.random.default_rng(seed)
    names = {"label": schema.label, "entity": schema.entity}
    columns = {role: name for role, name in names.items() if name is not None and name in table.columns}
    rows: list[NDArray[Any]] = []  # a random key per row, its slots, and one column per role
    for slots_ND, frame in vectoriser.batches_with(table, list(columns.values())):
        batch = [rng.random(len(slots_ND)), slots_ND]
        for role, name in columns.items():
            batch.append(text_of(role_column(frame, name, role, table.name), schema.missing_words).to_numpy())
        rows = [np.concatenate(pair) for pair in zip(rows, batch, strict=True)] if rows else batch
        if len(rows[0]) > MAX_ROWS:
            smallest = np.sort(np.argpartition(rows[0], MAX_ROWS)[:MAX_ROWS])
            rows = [values[smallest] for values in rows]
    values_of = dict(zip(columns, rows[2:], strict=True))
    entities = values_of.get("entity")
    if entities is not None and (missing := sum(entity is None for entity in entities)):
        raise InputError(
            f"{missing} of {len(entities)} training rows have no entity",
            file=table.name,
            column=schema.entity,
            remedy="drop these rows, or fill in their entity",
        )
    return rows[1], values_of.get("label"), None if entities is None else entities.astype(str)


# ---- tables larger than memory ---------------------------------------------------------------------------------------


def code_columns(coder: SlotCoder) -> list[str]:
    """The names of the code columns: code_a, code_b, …, and those of the entity: profile_a, …"""
    own = [f"code_{letter}" for letter in ascii_lowercase[: coder.config.levels]]
    return own + [f"profile_{letter}" for letter in ascii_lowercase[: coder.profile_levels]]


def encode_to_parquet(
    tokenizer: RecordTokenizer,
    source: str | Path,
    out: str | Path,
    *,
    query: str | None = None,
    absent: bool = False,
    sides: Mapping[str, str] | None = None,
) -> int:
    """Write the codes of a table, with its entity, time and label columns; returns the number of records.

    With `absent`, fields whose columns are missing are absent. `sides` are side tables, by field.
    """
    sides = sides or {}
    out = Path(out)
    check_writable(out)
    if is_postgresql(source) or not Path(source).is_dir() or is_meds(Path(source)):
        opened = open_table(source, query=query, meds=tokenizer.schema.meds)
        return _encode_file(tokenizer, opened, out, absent, sides)
    open_table(source)  # checks that the files belong together
    return sum(
        _encode_file(tokenizer, open_table(path), target, absent, sides)
        for path, target in check_targets(source, out).items()
    )


def check_targets(source: str | Path, out: Path) -> dict[Path, Path]:
    """The file that the codes of each file go to: of a folder, one of the same name; of anything else, `out`."""
    source = local_path(source)
    if not source.is_dir():
        return {path.absolute(): out for path in table_files(source)}
    if out.is_file():
        raise InputError("the codes of a folder go to a folder, not a file", file=out, remedy="give a new folder")
    if out.resolve() == source.resolve():
        raise InputError("the codes cannot replace the table", file=out, remedy="give another folder")
    return {path.absolute(): out / path.relative_to(source) for path in parquet_files(source)}


def read_codes(source: str | Path, coder: SlotCoder) -> Codes:
    """The codes in a file or folder that `encode_to_parquet` wrote."""
    table = open_table(source)
    return table.frame(code_columns(coder)).to_numpy().astype(np.int64).astype(np.uint16)


def _encode_file(tokenizer: RecordTokenizer, table: Table, out: Path, absent: bool, sides: Mapping[str, str]) -> int:
    if out.is_dir():
        remedy = f"try {out / 'codes.parquet'}"
        raise InputError("the codes of a file go to a file, not a folder", file=out, remedy=remedy)
    table = tokenizer.vectoriser.readable(with_sides(table, tokenizer.schema, sides), absent=absent)
    with progress(f"encoding {table.name}", None) as advance:
        return write_codes(encoded(tokenizer, table), no_codes(tokenizer, table), out, advance)


def encoded(tokenizer: RecordTokenizer, table: Table) -> Iterator[pl.DataFrame]:
    """The rows that are written for a table, batch by batch."""
    names = code_columns(tokenizer.coder)
    for codes_NK, frame in tokenizer.batches(table, kept_roles(tokenizer.schema, table)):
        codes = pl.DataFrame({name: codes_NK[:, k] for k, name in enumerate(names)})
        yield pl.concat([frame, codes], how="horizontal")


def no_codes(tokenizer: RecordTokenizer, table: Table) -> pl.DataFrame:
    """What is written for a table without rows."""
    names = code_columns(tokenizer.coder)
    roles = dict.fromkeys(kept_roles(tokenizer.schema, table), pl.String)
    return pl.DataFrame(schema=roles | dict.fromkeys(names, pl.UInt16))


def write_codes(frames: Iterable[pl.DataFrame], empty: pl.DataFrame, out: Path, advance: Advance) -> int:
    """Write frames of codes as one file; returns the number of records."""

    def counted() -> Iterator[pl.DataFrame]:
        for frame in frames:
            yield frame
            advance(frame.height)

    codes = counted()
    return write_parquet(chain([next(codes, empty)], codes), out)
