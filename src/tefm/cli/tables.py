"""Commands about a table and its codes: inspect, tokenize, encode, decode, doctor."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import RenderableType
from rich.markup import escape
from typer import Argument, Option

from tefm.base.errors import TefmError
from tefm.base.progress import err, note
from tefm.cli.app import (
    AbsentOption,
    DeviceOption,
    QueryOption,
    RayOptions,
    Results,
    SideOption,
    TableArg,
    TokenizerArg,
    command,
    side_tables,
)


@dataclass(frozen=True)
class RoleOptions:
    """Columns with a role, where no schema names them, and the query of the table."""

    entity: Annotated[str | None, Option(help="column that names the entity, e.g. the patient")] = None
    time: Annotated[str | None, Option(help="column that orders the records of an entity")] = None
    label: Annotated[str | None, Option(help="column to predict")] = None
    query: QueryOption = None

    @property
    def roles(self) -> dict[str, str | None]:
        return {"entity": self.entity, "time": self.time, "label": self.label}


@command("tefm inspect admissions.csv --entity patient_id --label died --out schema.yaml")
def inspect(
    table: TableArg,
    options: RoleOptions,
    meds: Annotated[
        list[str] | None, Option("--meds", help="how a MEDS folder becomes records, as name=value, e.g. records=window")
    ] = None,
    schema_out: Annotated[Path | None, Option("--out", help="write the schema here, to edit it")] = None,
) -> Results:
    """Look at a table: the probable kind of each column, and columns that leak the label."""
    from tefm import open_table
    from tefm.base.files import check_writable
    from tefm.show.terminal import schema_table
    from tefm.tables.infer import schema_of
    from tefm.tables.readers.databases import is_postgresql
    from tefm.tables.schema import MedsRecords

    if schema_out is not None:
        check_writable(schema_out)
    settings = MedsRecords.checked(_pairs(meds, option="--meds", example="window=7d")) if meds else None
    opened = open_table(table, query=options.query, meds=settings)
    schema, guesses = schema_of(opened, **options.roles)
    if schema_out is not None:
        schema.save(schema_out)  # also where a column is refused below: to be edited
    leaks, remarks = _leaks(opened, schema), _ambiguities(opened, schema)
    body = {
        "table": opened.name,
        "schema": schema.model_dump(mode="json", exclude_defaults=True),
        "columns": [{"column": g.column, "kind": g.kind, "why": g.why, "missing": g.missing} for g in guesses],
        "leaks": [vars(leak) for leak in leaks],
        "remarks": remarks,
    }
    parts: list[RenderableType] = [schema_table(opened.name, schema, guesses)]
    parts += [f"[yellow]![/] {escape(str(remark))}" for remark in (*leaks, *remarks)]
    if schema_out is not None:
        parts.append(f"schema written to {schema_out}; edit it, then:")
        source = opened.name if is_postgresql(table) else table  # never a password
        if schema.label is None and schema.entity is None:
            parts.append(f"tefm tokenize {source} --schema {schema_out} --out tokenizer")
        else:
            parts.append(escape(f"task.yaml:  {{table: {source}, schema: {schema_out}}}"))
            parts.append("tefm fit task.yaml --out model")
            if schema.label is None:
                parts.append("without a label (--label), a fit learns to predict the next value of every field")
    return Results(body, parts)


@command("tefm tokenize admissions.csv --schema schema.yaml --out tokenizer", log=True)
def tokenize(
    table: TableArg,
    folder: Annotated[Path, Option("--out", help="folder for the tokenizer")],
    options: RoleOptions,
    schema: Annotated[Path | None, Option(help="schema YAML (default: inferred)")] = None,
    preset: Annotated[str, Option(help="default, or paper for the paper's plain objective")] = "default",
    unsupervised: Annotated[bool, Option("--unsupervised", help="codes that do not use the label")] = False,
    levels: Annotated[int | None, Option(help="K, the number of levels: a record becomes K codes")] = None,
    entries: Annotated[int | None, Option(help="C, the codebook entries per level")] = None,
    buckets: Annotated[int | None, Option(help="B, the buckets of every number field")] = None,
    steps: Annotated[int | None, Option(help="training steps")] = None,
    seed: Annotated[int, Option(help="random seed")] = 0,
    settings: Annotated[list[str] | None, Option("--set", help="any other setting, as name=value")] = None,
    device: DeviceOption = None,
) -> Results:
    """Fit a tokenizer: learn slots and codes from a table. Resumes if interrupted."""
    from tefm import RecordTokenizer
    from tefm.base.files import check_replaceable, check_writable, held

    opened, table_schema = _table_and_schema(table, schema, options)
    table_schema = table_schema if buckets is None else table_schema.with_buckets(buckets)
    given = {"levels": levels, "entries": entries, "steps": steps, "seed": seed, **_pairs(settings or [])}
    chosen = {name: value for name, value in given.items() if value is not None}
    tokenizer = RecordTokenizer(preset=preset, device=device, **chosen)  # type: ignore[arg-type]
    checkpoint = folder.with_name(f"{folder.name}.checkpoint")
    with held(folder):
        check_replaceable(folder, RecordTokenizer.is_saved)
        check_writable(folder)
        if checkpoint.exists():
            note(f"resuming from {checkpoint}")
        tokenizer.fit(opened, table_schema, task_aware=False if unsupervised else None, checkpoint=checkpoint)
        tokenizer.save(folder)
    history, coder = tokenizer.coder.history_, tokenizer.coder
    facts = {
        "folder": str(folder),
        "slots": coder.layout.width,
        "levels": coder.config.levels,
        "entries": coder.config.entries,
        "profile_levels": coder.profile_levels,
        "task_aware": bool(coder.classes_),
        "classes": list(coder.classes_),
        "steps": history.stopped_at,
        "resumed_from": history.resumed_from,
        "identity": coder.identity,
    }
    kind = f"task-aware codes for {table_schema.label!r}" if coder.classes_ else "unsupervised codes"
    sizes = f"{kind}: {coder.layout.width} slots become {coder.config.levels} × {coder.config.entries}"
    if coder.profile_levels:
        fields = ", ".join(table_schema.static)
        sizes += f"; {fields}: {coder.profile_levels} × {coder.config.entries} once per {table_schema.entity}"
    return Results(facts, [sizes, f"saved to {folder}. Next: tefm doctor {folder} {opened.name}"])


@command("tefm encode tokenizer admissions.parquet --out codes.parquet")
def encode(
    tokenizer: TokenizerArg,
    table: TableArg,
    target: Annotated[Path, Option("--out", help="Parquet file; a folder when the table is a folder")],
    ray: RayOptions,
    query: QueryOption = None,
    absent: AbsentOption = False,
    side: SideOption = None,
    device: DeviceOption = None,
) -> Results:
    """Encode a table to Parquet, with entity, time and label, in bounded memory."""
    from tefm import RecordTokenizer
    from tefm.codes.tokenizer import encode_to_parquet

    if (job := ray.job(tokenizer, table, query=query, side=side, absent=absent, device=device)) is not None:
        records = job.encode(target)
    else:
        loaded = RecordTokenizer.load(tokenizer, device=device)
        sides = side_tables(side)
        records = encode_to_parquet(loaded, table, target, query=query, absent=absent, sides=sides)
    return Results({"records": records, "out": str(target)}, [f"{records:,} records encoded to {target}"])


@command("tefm decode tokenizer codes.parquet --out records.parquet")
def decode(
    tokenizer: TokenizerArg,
    codes: Annotated[Path, Argument(help="Parquet that `tefm encode` wrote")],
    target: Annotated[Path | None, Option("--out", help="Parquet file for the records")] = None,
    words: Annotated[bool, Option("--words", help="print records in words")] = False,
    rows: Annotated[int, Option(help="records to print")] = 3,
) -> Results:
    """Turn codes back into records: a lossy reconstruction."""
    from tefm import RecordTokenizer
    from tefm.base.files import replacing
    from tefm.codes.tokenizer import read_codes
    from tefm.language.vocabulary import CodeVocabulary
    from tefm.tables.phrases import describe

    loaded = RecordTokenizer.load(tokenizer)
    codes_NK = read_codes(codes, loaded.coder)
    if target is not None:
        with replacing(target) as temporary:
            loaded.decode(codes_NK).write_parquet(temporary)
        err.print(f"{len(codes_NK):,} records decoded to {target}")
    first = loaded.coder.decode(codes_NK[:rows])
    lines = []
    if words or target is None:
        record, coder = loaded.schema.record, loaded.coder
        entries, profile = coder.config.entries, coder.profile_levels
        tokens = CodeVocabulary.of(record, levels=coder.levels, entries=entries, profile=profile)
        for code, slots in zip(codes_NK[:rows], first, strict=True):
            lines.append(f"[bold]{tokens.text(code)}[/]  {escape(describe(loaded.vectoriser, slots))}")
    return Results(loaded.vectoriser.inverse(first).to_dicts(), lines)


@command("tefm doctor tokenizer admissions.csv")
def doctor(
    tokenizer: TokenizerArg,
    table: TableArg,
    query: QueryOption = None,
    side: SideOption = None,
    seed: Annotated[int, Option(help="seed of the split that the ceiling is measured on")] = 0,
    device: DeviceOption = None,
) -> Results:
    """Examine codes: fidelity, codebook use, collisions, how well they could predict, and what to change.

    Give it records that the tokenizer was not trained on; on training records the figures are too good.
    """
    from tefm import RecordTokenizer, open_table
    from tefm.codes.doctor import examine_table
    from tefm.show.terminal import examination_tables
    from tefm.tables.columns import with_sides

    loaded = RecordTokenizer.load(tokenizer, device=device)
    opened = open_table(table, query=query, meds=loaded.schema.meds)
    examination = examine_table(loaded, with_sides(opened, loaded.schema, side_tables(side)), seed=seed)
    return Results(examination.to_dict(), examination_tables(examination))


def _table_and_schema(table: str, schema: Path | None, options: RoleOptions) -> tuple[Any, Any]:
    from tefm import Schema, open_table
    from tefm.tables.infer import infer_schema

    given = None if schema is None else Schema.load(schema)
    opened = open_table(table, query=options.query, meds=None if given is None else given.meds)
    if given is None:
        return opened, infer_schema(opened, **options.roles)
    if roles := [role for role, name in options.roles.items() if name is not None]:
        raise TefmError(
            f"--{min(roles)} and --schema are both given",
            remedy="write the role into the schema, or leave --schema out",
        )
    return opened, given


def _leaks(opened: Any, schema: Any) -> list[Any]:
    """Fields of the first rows that give the label away."""
    from tefm import Vectoriser
    from tefm.tables.grouping import in_buckets, labels_of
    from tefm.tables.infer import sample_of
    from tefm.tables.leakage import check_leakage, label_copies

    frame = sample_of(opened)
    labels = labels_of(frame, schema, file=opened.name)
    if labels is None or len({*labels, None}) < 3:  # a missing label and one other say nothing
        return []
    vectoriser = Vectoriser.fit(frame, schema)
    labels = in_buckets(labels, schema, opened.name)
    leaks = check_leakage(vectoriser.transform(frame), vectoriser.layout, labels)
    return [*leaks, *label_copies(frame, schema)]


def _ambiguities(opened: Any, schema: Any) -> list[str]:
    """What the records of an entity leave open; what a fit would refuse about them is said here already."""
    from tefm.codes.config import TokenizerConfig
    from tefm.language.shortening import about_long
    from tefm.tables.overview import ambiguities

    roles = [name for name in (schema.entity, schema.time, schema.label) if name is not None]
    if not roles:
        return []
    try:
        frame = opened.frame(roles)
        if schema.entity is None:
            return ambiguities(frame, schema, file=opened.name)
        long = about_long(frame[schema.entity].value_counts()["count"].to_numpy(), TokenizerConfig().levels)
        return [*ambiguities(frame, schema, file=opened.name), *([long] if long else [])]
    except TefmError as error:
        return [str(error)]


def _pairs(settings: list[str], *, option: str = "--set", example: str = "latent=64") -> dict[str, Any]:
    """`name=value` settings; values are read as JSON where they are JSON."""
    values: dict[str, Any] = {}
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not separator:
            raise TefmError(f"{option} takes name=value", value=setting, remedy=f"for example: {option} {example}")
        try:
            values[name] = json.loads(value)
        except json.JSONDecodeError:
            values[name] = value
    return values
