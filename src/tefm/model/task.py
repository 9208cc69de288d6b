"""The task file (a table, its roles, a split, any setting of a model), and what comes of a task."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ConfigDict
from pydantic import Field as Setting

from tefm.base.errors import InputError, SettingsError, did_you_mean
from tefm.base.settings import Settings
from tefm.pipeline.config import ModelConfig, without_names
from tefm.questions.config import QuestionsConfig
from tefm.tables.readers.databases import is_postgresql
from tefm.tables.readers.meds import is_meds
from tefm.tables.readers.table import Table, open_table
from tefm.tables.schema import MedsRecords, Schema, TextLoader


class Split(Settings):
    """How sequences are split into train, validation and test."""

    by: Literal["random", "time"] = "random"
    shares: tuple[float, float, float] = (0.8, 0.1, 0.1)
    seed: int = 0


class Task(Settings):
    """A task file; paths in it are relative to it.

    >>> task = Task.from_yaml("{table: stays.csv, entity: patient, label: died, prompt: {preset: mortality}}")
    >>> task.table, task.split.shares, task.model.prompt
    ('stays.csv', (0.8, 0.1, 0.1), {'preset': 'mortality'})
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, protected_namespaces=())

    table: str
    query: str | None = None
    #: a schema file, or the schema itself; inferred from the table and the roles below when left out
    given_schema: str | dict[str, Any] | None = Setting(default=None, alias="schema")
    entity: str | None = None
    time: str | None = None
    #: a column, or as in the schema `{column: days, kind: number}`
    label: str | dict[str, Any] | None = None
    #: columns of free text, as in the schema: a list of names, or names with a budget of tokens
    text: list[str] | dict[str, Any] | None = None
    #: columns that are left out, on top of those that the schema leaves out
    ignore: tuple[str, ...] = ()
    #: how records are made of the events of a MEDS folder; as the schema says when left out
    meds: MedsRecords | None = None
    split: Split = Split()
    model: ModelConfig = ModelConfig()

    @classmethod
    def load(cls, path: str | Path) -> Task:
        path = Path(path)
        if not path.is_file():
            raise SettingsError(
                "no such task file",
                file=path,
                remedy="write one, for example: {table: stays.csv, entity: patient, label: died}",
            )
        return cls.from_yaml(path.read_text(encoding="utf-8"), folder=path.parent, file=path)

    @classmethod
    def from_yaml(cls, text: str, *, folder: Path | None = None, file: Path | None = None) -> Task:
        """A task from YAML text; settings that are not the task's own are those of the model."""
        try:
            body = yaml.load(text, TextLoader)  # a class called `yes` is no truth value
        except yaml.YAMLError as error:
            raise SettingsError(f"not valid YAML: {error}", file=file, remedy="fix the line") from error
        if not isinstance(body, dict):
            raise SettingsError(
                "a task file holds settings, one `name: value` per line", file=file, remedy="start with `table: PATH`"
            )
        own = ("table", "query", "schema", "entity", "time", "label", "text", "ignore", "meds", "split")
        known = (*own, *ModelConfig.model_fields)
        # a misspelled name comes first: it explains the one that is missing
        for name in body:
            if name not in known:
                raise SettingsError(f"unknown setting {name!r}", file=file, remedy=did_you_mean(str(name), known))
        if body.get("table") is None:
            raise SettingsError("the task does not name a table", file=file, remedy="add `table: PATH`")
        model = ModelConfig.checked(without_names(body, *own), file=file)
        task = cls.checked({name: value for name, value in body.items() if name in own} | {"model": model}, file=file)
        return task if folder is None else task.relative_to(folder)

    def relative_to(self, folder: Path) -> Task:
        """A copy whose paths are taken as relative to `folder`."""
        update: dict[str, Any] = {} if is_postgresql(self.table) else {"table": str(folder / self.table)}
        if self.query is not None and is_meds(folder / self.table):
            update["query"] = str(folder / self.query)  # the label file
        if isinstance(self.given_schema, str):
            update["given_schema"] = str(folder / self.given_schema)
        elif self.given_schema is not None:
            schema = Schema.from_yaml(yaml.safe_dump(self.given_schema)).relative_to(folder)
            update["given_schema"] = yaml.safe_load(schema.to_yaml())
        return self.model_copy(update=update)

    def open(self) -> Table:
        """The table of the task."""
        given = self._schema if self.meds is None else None
        return open_table(self.table, query=self.query, meds=self.meds if given is None else given.meds)

    def schema_for(self, table: Any) -> Schema:
        """The schema of the task, as given or inferred."""
        from tefm.tables.infer import infer_schema

        table, schema = open_table(table), self._schema
        for column in self.ignore:
            if column not in table.columns:
                remedy = did_you_mean(column, table.columns)
                raise InputError(
                    "the column to ignore is not in the table", file=table.name, column=column, remedy=remedy
                )
        if schema is None:
            given = {"column": self.label} if isinstance(self.label, str) else self.label or {}
            label, observed = given.get("time_to", given.get("column")), given.get("observed")
            schema = infer_schema(table, entity=self.entity, time=self.time, label=label)
            schema = schema.without([observed] if observed in schema.columns else [])
            schema = schema.with_roles(label=self.label) if isinstance(self.label, dict) else schema
            schema = schema.without(_answers(schema, self.model.questions_config))
        else:
            roles = {name: value for name in ("entity", "time", "label") if (value := getattr(self, name)) is not None}
            schema = schema.with_roles(**roles).model_copy(update={"meds": table.meds})
        return schema.with_text(self.text).without(self.ignore)

    @property
    def _schema(self) -> Schema | None:
        if isinstance(self.given_schema, str):
            return Schema.load(self.given_schema)
        return None if self.given_schema is None else Schema.from_yaml(yaml.safe_dump(self.given_schema))


def _answers(schema: Schema, questions: QuestionsConfig | None) -> list[str]:
    """The columns that hold the answer to a question, and nothing else: they are not fields."""
    asked = questions.asked if questions else ()
    answers = dict.fromkeys(entry.column for entry in asked if entry.column is not None)
    return [column for column in answers if column not in (schema.label, schema.entity, schema.time)]
