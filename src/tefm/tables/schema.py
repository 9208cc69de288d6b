"""The schema: what each column of the user's table means.

A `Schema` is inferred from a table, printed, written as YAML that a person edits, and validated
when it is read back. It has no learned values: those are in the fitted `Vectoriser`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Literal

import yaml
from pydantic import Field as Setting
from pydantic import PositiveInt, field_validator, model_validator

from tefm.base.errors import SchemaError, TefmError, did_you_mean, failing_as
from tefm.base.files import write_text
from tefm.base.settings import Settings

Kind = Literal["category", "number", "flag", "set"]
#: What a field is computed from that comes from the time: since the previous or the first record, or of the calendar.
Clock = Literal["previous", "first", "weekday", "hour"]
#: What a field is computed from that comes from a date, and the settings of such fields.
DatePart = Literal["days", "month", "weekday"]
DATE_PARTS: Mapping[DatePart, dict[str, str]] = {
    "days": {"kind": "number", "unit": "days"},
    "month": {"kind": "category"},
    "weekday": {"kind": "category"},
}

#: Words that mean "missing" in any column, compared without case and surrounding blanks.
MISSING_WORDS = ("", "?", "na", "n/a", "nan", "null", "none", "nil", "#n/a")

#: Words that switch a flag on, compared without case.
TRUE_WORDS = ("1", "1.0", "true", "t", "yes", "y", "on")
FALSE_WORDS = ("0", "0.0", "false", "f", "no", "n", "off")


class Side(Settings):
    """A long side table with several values per record, one per row."""

    table: str
    key: str
    value: str
    #: False in the schema of a saved model, which may come from a stranger: `table` is then shown, never opened
    opened: bool = Setting(default=True, exclude=True)


class Lookup(Settings):
    """A table with readable names for values: ICD code → title."""

    table: str
    key: str
    name: str


class _Described(Settings):
    """What a schema consists of."""

    ERROR: ClassVar[type[TefmError]] = SchemaError


class NumberLabel(_Described):
    """How a label that is a number is predicted.

    >>> schema = Schema.from_yaml("{label: {column: days, kind: number, buckets: 5}, fields: {age: number}}")
    >>> schema.label, schema.number
    ('days', NumberLabel(buckets=5, interval=0.8, observed=None))
    """

    #: the largest number of classes, with about as many training labels each
    buckets: int = Setting(default=10, ge=3, le=50)
    #: the share of sequences whose number the interval around a prediction holds
    interval: float = Setting(default=0.8, ge=0.5, le=0.99)
    #: of a time until an event: the column that says whether the event then happened, or the follow-up ended
    observed: str | None = None


class Field(_Described):
    """One field of a record: one column, or several columns that form a set.

    >>> Field(name="age", kind="number", unit="years").source
    ('age',)
    >>> Field(name="dx", kind="set", columns=("diag_1", "diag_2")).source
    ('diag_1', 'diag_2')
    """

    name: str
    kind: Kind
    columns: tuple[str, ...] = ()
    title: str | None = None
    group: str | None = None
    unit: str | None = None
    #: numbers: at most this many equal-frequency buckets (also for the count of a set)
    buckets: int = Setting(default=32, ge=1, le=250)
    #: categories and sets: only this many most frequent values are distinguished; None is the kind's default
    top: int | None = Setting(default=None, ge=1, le=60_000)
    #: sets: whether a bucketed count of values precedes the flags
    count: bool = True
    #: sets written as one string, e.g. "428;250.01;401"
    delimiter: str | None = Setting(default=None, min_length=1)
    #: values that mean "absent" in this field, in addition to the schema's `missing` words
    absent: tuple[str, ...] = ()
    #: values that switch a flag on; None is the usual words (1, true, yes, …)
    on: tuple[str, ...] | None = Setting(default=None, min_length=1)
    #: readable names of values
    names: dict[str, str] = Setting(default={})
    lookup: Lookup | None = None
    side: Side | None = None
    #: computed from the time column of the table, not read from a column of its own
    clock: Clock | None = None
    #: a category computed from the records before: when the value of the field with this name was last seen
    repeats: str | None = None
    #: computed from the dates in its column
    part: DatePart | None = None

    @property
    def derived(self) -> bool:
        """Whether the field is computed, and no column holds it as it is (`tables/derived.py`)."""
        return self.clock is not None or self.repeats is not None or self.part is not None

    @property
    def source(self) -> tuple[str, ...]:
        """The columns of the record table that this field is read from."""
        if self.side is not None:
            return (self.side.key,)
        return () if self.clock or self.repeats else self.columns or (self.name,)

    @property
    def display_name(self) -> str:
        """The field's display name."""
        return self.title or self.name.replace("_", " ").strip()

    @property
    def limit(self) -> int:
        """How many values are distinguished; the rest are "other"."""
        return self.top or (200 if self.kind == "set" else 40)

    @property
    def on_words(self) -> tuple[str, ...]:
        """The values that switch a flag on."""
        return self.on or TRUE_WORDS

    def is_on(self, word: str) -> bool:
        return word in self.on_words or word.lower() in self.on_words

    @model_validator(mode="after")
    def _consistent(self) -> Field:
        if len(self.columns) > 1 and self.kind != "set":
            raise ValueError(
                f"several columns form one field only when kind is 'set', not {self.kind!r}"
                " → change the kind to 'set', or write one field per column"
            )
        if self.side is not None and (self.kind != "set" or self.columns):
            raise ValueError("'side' is for kind 'set' and takes no 'columns' → leave one of the two out")
        if self.on is not None and self.kind != "flag":
            raise ValueError("'on' is for kind 'flag' → leave it out, or change the kind to 'flag'")
        if self.repeats is not None and (self.kind != "category" or self.columns or self.clock):
            raise ValueError(
                "'repeats' is for kind 'category' and takes no other source → write "
                f"`{self.name}: {{kind: category, repeats: FIELD}}`"
            )
        if self.part is not None and len(self.columns) != 1:
            raise ValueError(f"'part' is of one column of dates → write `{self.name}: {{kind: date}}`")
        return self


class Schema(_Described):
    """What the columns of a table mean: fields, roles and words for missing values.

    >>> schema = Schema(
    ...     fields=(Field(name="age", kind="number"), Field(name="drugs", kind="set", delimiter=";")),
    ...     entity="patient", label="died", record="admission",
    ... )
    >>> print(schema.to_yaml())
    record: admission
    entity: patient
    label: died
    fields:
      age:
        kind: number
      drugs:
        kind: set
        delimiter: ;
    <BLANKLINE>
    >>> Schema.from_yaml(schema.to_yaml()) == schema
    True
    """

    fields: tuple[Field, ...]
    record: str = "record"
    entity: str | None = None
    time: str | None = None
    label: str | None = None
    #: where the label is a number: how it is predicted
    number: NumberLabel | None = None
    #: fields of the entity, which never change: coded once per sequence, in front of its records
    static: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    #: tokens of each text column, at most, for every record; empty: the text of the last record is read, as one
    text_budgets: tuple[PositiveInt, ...] = ()
    ignore: tuple[str, ...] = ()
    missing: tuple[str, ...] = MISSING_WORDS
    #: whether a fit adds fields that come from the time (`tables/clock.py`)
    time_fields: Literal["auto", "none"] = "auto"
    #: whether a fit adds fields that say what repeats, where they tell the label apart (`tables/repeats.py`)
    repeat_fields: Literal["auto", "none"] = "auto"
    #: how records are made of the events of a MEDS folder
    meds: MedsRecords | None = None

    def __repr__(self) -> str:
        """In one line; `print(schema.to_yaml())` shows all of it."""
        roles = ("record", "entity", "time", "label")
        named = "".join(f", {role}={value!r}" for role in roles if (value := getattr(self, role)) is not None)
        return f"Schema({len(self.fields)} fields{named})"

    @model_validator(mode="before")
    @classmethod
    def _with_number(cls, body: Any) -> Any:
        """`label` as a mapping: `{column: days, kind: number}`, or `kind: category` for the values as classes."""
        if not isinstance(body, dict) or not isinstance(label := body.get("label"), dict):
            return body
        settings = {"kind": "number", **label}
        if "time_to" in settings:
            settings["column"] = settings.pop("time_to")
            if not isinstance(settings.get("observed"), str):
                raise ValueError(
                    "`time_to` needs a column that says whether the event happened then, or the follow-up ended"
                    " → write `label: {time_to: days_left, observed: died}`"
                )
        column, kind = settings.pop("column", None), settings.pop("kind")
        if not isinstance(column, str) or kind not in ("number", "category") or (kind == "category" and settings):
            raise ValueError(
                f"not a valid label: {label!r} → write `label: {{column: days, kind: number}}`, "
                "or `kind: category` for the values as classes"
            )
        return {**body, "label": column, "number": NumberLabel.checked(settings) if kind == "number" else None}

    @model_validator(mode="before")
    @classmethod
    def _with_budgets(cls, body: Any) -> Any:
        """`text` as a mapping gives every column a budget: `{note: 64}` or `{note: {tokens: 64}}`."""
        if not isinstance(body, dict) or not isinstance(body.get("text"), dict):
            return body
        budgets = {}
        for column, settings in body["text"].items():
            tokens = settings["tokens"] if isinstance(settings, dict) and set(settings) == {"tokens"} else settings
            if not str(tokens).isdigit() or int(tokens) < 1:
                raise ValueError(
                    f"the text {column!r} needs a number of tokens, not {settings!r}"
                    f" → write `text: {{{column}: {{tokens: 64}}}}`, or `text: [{column}]` for the last record's"
                )
            budgets[column] = int(tokens)
        return {**body, "text": tuple(budgets), "text_budgets": tuple(budgets.values())}

    @model_validator(mode="after")
    def _consistent(self) -> Schema:
        if self.text_budgets and len(self.text_budgets) != len(self.text):
            raise ValueError(
                f"{len(self.text)} text columns have {len(self.text_budgets)} budgets"
                " → write `text: {COLUMN: {tokens: 64}}` for each of them"
            )
        if self.number is not None and self.label is None:
            raise ValueError(
                "`number` is about the label, and there is none → write `label: {column: COLUMN, kind: number}`"
            )
        if not self.fields:
            raise ValueError("a schema needs at least one field → write one, e.g. `age: {kind: number}`")
        roles = [("entity", self.entity), ("time", self.time), ("label", self.label)]
        uses = [(column, role) for role, column in roles if column is not None]
        uses += [(column, "text") for column in self.text] + [(column, "ignore") for column in self.ignore]
        uses += [
            (column, "a date" if field.part else f"field {field.name!r}")
            for field in self.fields
            if field.side is None
            for column in field.source
        ]
        use_of: dict[str, str] = {}
        for column, use in uses:
            if use_of.get(column, use) != use:
                raise ValueError(
                    f"column {column!r} is used twice: as {use_of[column]} and as {use} → keep one of them"
                )
            use_of[column] = use
        for column in filter(None, (self.label, self.observed)):
            if (leaking := self.field_reading(column)) is not None:
                raise ValueError(
                    f"field {leaking.name!r} would be read from the label column {column!r}"
                    " → rename the field, or leave it out"
                )
        (name, times), *_ = Counter(field.name for field in self.fields).most_common(1)
        if times > 1:
            raise ValueError(f"field name {name!r} is used twice → rename one of them")
        self._check_static()
        self._check_repeats()
        return self

    def _check_repeats(self) -> None:
        repeated = {field.name: field for field in self.fields if field.kind == "category" and not field.derived}
        for field in self.fields:
            if field.repeats is not None and field.repeats not in repeated:
                raise ValueError(
                    f"field {field.name!r} repeats {field.repeats!r}, which is not a category with a column of its own"
                    f" → {did_you_mean(field.repeats, repeated)}"
                )

    def _check_static(self) -> None:
        if not self.static:
            return
        derived = {field.name: field.derived for field in self.fields}
        for name in self.static:
            if name not in derived:
                raise ValueError(f"`static` names {name!r}, which is not a field → {did_you_mean(name, derived)}")
            if derived[name]:
                raise ValueError(f"`static` names {name!r}, which is computed for every record → leave it out")
        if self.entity is None:
            raise ValueError("`static` fields need an entity → name its column, `entity: COLUMN`")
        if len(set(self.static)) == len(self.fields):
            raise ValueError("all fields are `static`: the records have none → leave at least one of them out")

    @property
    def observed(self) -> str | None:
        """Where the label is a time until an event: the column that says whether the event was observed."""
        return None if self.number is None else self.number.observed

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the fields are read from, each once, in order."""
        return tuple(dict.fromkeys(column for field in self.fields for column in field.source))

    def fields_of(self, name: str) -> tuple[str, ...]:
        """The fields that a field or a column is read into, with those that say when their values were last seen.

        >>> schema = Schema.from_yaml("{fields: {ward: category, again: {kind: category, repeats: ward}}}")
        >>> schema.fields_of("ward"), schema.fields_of("again"), schema.fields_of("wards")
        (('ward', 'again'), ('again',), ())
        """
        own = {field.name for field in self.fields if name in (field.name, *field.columns)}
        return tuple(field.name for field in self.fields if field.name in own or field.repeats in own)

    @property
    def missing_words(self) -> frozenset[str]:
        return frozenset(word.strip().lower() for word in self.missing)

    def field(self, name: str) -> Field:
        """The field with this name."""
        by_name = {field.name: field for field in self.fields}
        if name not in by_name:
            raise SchemaError("no such field", column=name, remedy=did_you_mean(name, by_name))
        return by_name[name]

    def field_reading(self, column: str) -> Field | None:
        """The field that is read from a column, or would be if the table lacks the field's own columns."""
        return next((field for field in self.fields if column in (field.name, *field.source)), None)

    def with_roles(self, **roles: Any) -> Schema:
        """A copy with other columns as `entity`, `time` or `label`; a role that is also a field is refused."""
        other = "label" in roles and roles["label"] != self.label
        return Schema.checked({**dict(self), **({"number": None} if other else {}), **roles})

    def with_text(self, text: Sequence[str] | Mapping[str, Any] | None) -> Schema:
        """A copy with these columns as text, not as fields; a set keeps its others. None changes nothing."""
        if text is None:
            return self
        ignore = tuple(column for column in self.ignore if column not in text)
        return self._without_fields(text, ignore=ignore, text=text, text_budgets=())

    def without(self, columns: Collection[str]) -> Schema:
        """A copy that ignores these columns; a set keeps its others. One that has a role is refused.

        >>> drugs = Field(name="drugs", kind="set", columns=("drug_1", "drug_2"))
        >>> schema = Schema(fields=(Field(name="age", kind="number"), drugs)).without(["age", "drug_2"])
        >>> schema.columns, schema.ignore
        (('drug_1',), ('age', 'drug_2'))
        """
        if not columns:
            return self
        return self._without_fields(columns, ignore=tuple(dict.fromkeys((*self.ignore, *columns))))

    def _without_fields(self, columns: Collection[str], **changed: Any) -> Schema:
        """A changed copy without these columns: a set keeps its others, and fields of side tables stay."""
        fields: list[Field] = []
        for field in self.fields:
            left = tuple(column for column in field.source if column not in columns)
            if left == field.source or field.side is not None:
                fields.append(field)
            elif left:
                fields.append(field.model_copy(update={"columns": left}))
        static = tuple(field.name for field in fields if field.name in self.static)
        return Schema.checked({**dict(self), "fields": tuple(fields), "static": static, **changed})

    def closed(self, names: Mapping[str, Mapping[str, str]]) -> Schema:
        """The schema of a saved model: it opens no file by itself.

        `names` are the names of values that the model has learned from lookup tables, by field.
        """
        fields = []
        for field in self.fields:
            side = None if field.side is None else field.side.model_copy(update={"opened": False})
            known = field.names if field.lookup is None else {**names.get(field.name, {}), **field.names}
            fields.append(field.model_copy(update={"side": side, "lookup": None, "names": known}))
        return self._with_fields(fields)

    def with_buckets(self, buckets: int) -> Schema:
        """A copy with this many buckets for every number."""
        return self._with_fields(
            Field.checked({**dict(field), "buckets": buckets}, column=field.name) if field.kind == "number" else field
            for field in self.fields
        )

    def _with_fields(self, fields: Iterable[Field]) -> Schema:
        return self.model_copy(update={"fields": tuple(fields)})

    # ---- YAML -------------------------------------------------------------------------------------------------

    def to_yaml(self) -> str:
        """The schema as YAML that a person can edit; defaults are left out."""
        body: dict[str, Any] = self.model_dump(exclude={"fields"}, exclude_defaults=True, mode="json")
        if self.number is not None:
            named = {"time_to": self.label} if self.observed else {"column": self.label, "kind": "number"}
            body["label"] = {**named, **body.pop("number")}
        if budgets := body.pop("text_budgets", None):
            body["text"] = {name: {"tokens": tokens} for name, tokens in zip(self.text, budgets, strict=True)}
        body["fields"] = {
            field.name: field.model_dump(exclude={"name"}, exclude_defaults=True, mode="json") for field in self.fields
        }
        return yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=100)

    def save(self, path: str | Path) -> Path:
        """Write the schema as YAML."""
        return write_text(path, self.to_yaml())

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a schema from a YAML file; paths of lookups and side tables are relative to it."""
        path = Path(path)
        if not path.is_file():
            remedy = "create one with: tefm inspect TABLE --out schema.yaml"
            raise SchemaError("no such schema file", file=path, remedy=remedy)
        problem, remedy = "the schema is not UTF-8 text", "save it as UTF-8"
        with failing_as(UnicodeDecodeError, problem, error=SchemaError, file=path, remedy=remedy):
            text = path.read_text(encoding="utf-8")
        return cls.from_yaml(text, file=path).relative_to(path.parent)

    def relative_to(self, folder: Path) -> Schema:
        """A copy with the paths of side and lookup tables taken as relative to `folder`."""

        def resolved(field: Field) -> Field:
            update = {
                name: part.model_copy(update={"table": str(folder / part.table)})
                for name, part in (("side", field.side), ("lookup", field.lookup))
                if part is not None
            }
            return field.model_copy(update=update)

        return self._with_fields(map(resolved, self.fields))

    @classmethod
    def from_yaml(cls, text: str, *, file: str | Path | None = None) -> Schema:
        """A schema from YAML text; errors name the setting and a remedy."""
        try:
            body = yaml.load(text, TextLoader)
        except yaml.YAMLError as error:
            raise SchemaError(
                f"not valid YAML: {error}", file=file, remedy="fix the line, or start with: tefm inspect TABLE"
            ) from error
        if not isinstance(body, dict) or not isinstance(body.get("fields"), dict):
            raise SchemaError(
                "a schema is a mapping with the key 'fields': name → {kind: …}",
                file=file,
                remedy="see an example with: tefm inspect TABLE",
            )
        body = _without_empty(body)
        fields = []
        for name, settings in body.pop("fields").items():
            if isinstance(settings, str):  # the short form `age: number`
                settings = {"kind": settings}
            if not isinstance(settings, dict):
                raise SchemaError(
                    "a field needs a kind", file=file, column=str(name), remedy=f"write `{name}: {{kind: number}}`"
                )
            body_of = {"name": str(name), **_without_empty(settings)}
            parts = _date_parts(body_of) if body_of.get("kind") == "date" else [body_of]
            fields += [Field.checked(part, file=file, column=str(name)) for part in parts]
        return cls.checked({**body, "fields": fields}, file=file)


class TextLoader(yaml.SafeLoader):
    """YAML in which every value is the text as written: `on`, `No` and `010` stay as they are.

    Pydantic converts what should be a number. A key that occurs twice is an error.
    """

    yaml_implicit_resolvers = {first: [("tag:yaml.org,2002:null", re.compile("^~?$"))] for first in ("", "~")}  # noqa: RUF012

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys: set[str] = set()
        for key, _ in node.value:
            if key.value in keys:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is given twice", key.start_mark)
            if isinstance(key.value, str):
                keys.add(key.value)
        return super().construct_mapping(node, deep)


def _date_parts(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The fields that a date is short for.

    >>> schema = Schema.from_yaml("{fields: {seen: {kind: date, title: Seen}}}")
    >>> [(field.name, field.display_name, field.source) for field in schema.fields][:2]
    [('seen_days', 'Seen (days)', ('seen',)), ('seen_month', 'Seen (month)', ('seen',))]
    """
    name, title = settings["name"], settings.get("title") or settings["name"].replace("_", " ")
    computed = ({"name": f"{name}_{part}", "title": f"{title} ({part})", "part": part} for part in DATE_PARTS)
    return [
        {**settings, "columns": [name], **part, **of} for part, of in zip(computed, DATE_PARTS.values(), strict=True)
    ]


def _without_empty(settings: dict[Any, Any]) -> dict[Any, Any]:
    """The settings without those that were left empty."""
    return {name: value for name, value in settings.items() if value is not None}


_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


class MedsRecords(Settings):
    """What one record is, and its columns; what is left out is found in the folder.

    >>> MedsRecords(records="window", window="36h").span
    datetime.timedelta(days=1, seconds=43200)
    """

    records: Literal["visit", "window"] = "visit"
    #: how long a window is: 12h, 7d, 4w
    window: str = "7d"
    #: the column that names the visit of an event
    visit: str | None = None
    #: codes (or what they begin with, up to a //) that begin a visit, where no column names it
    starts: tuple[str, ...] | None = Setting(default=None, min_length=1)
    #: vocabularies, which is what a code begins with: one set field each
    sets: tuple[str, ...] | None = None
    #: codes whose numeric value is a field
    numbers: tuple[str, ...] | None = None
    #: where `numbers` is left out: how many codes become numbers, the most frequent ones that have values
    most: int = Setting(default=50, ge=0)
    #: which value of several in a record counts
    value: Literal["last", "first", "mean", "min", "max"] = "last"
    #: whether the folder knows when subjects were born
    age: bool | None = None

    @field_validator("window")
    @classmethod
    def _is_duration(cls, text: str) -> str:
        if not re.fullmatch(r"[1-9]\d*[hdw]", text):
            raise ValueError("a window is a number with h, d or w, such as 12h, 7d or 4w")
        return text

    @property
    def span(self) -> timedelta:
        """How long a window is."""
        return timedelta(**{_UNITS[self.window[-1]]: int(self.window[:-1])})
