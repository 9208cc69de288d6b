"""`Domains`: several models of tables that share one language model. Each has a name, its own codes and questions.

The domain of a table is found by its columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tefm.base.errors import InputError, SettingsError, TefmError, did_you_mean
from tefm.language.backbone import AdaptedBackbone, Backbone
from tefm.model.bundle import NAME, domains_of, load_domains, load_preparation, save_domains
from tefm.model.estimator import TEFM
from tefm.pipeline.config import ModelConfig
from tefm.pipeline.prepare import Preparation
from tefm.tables.readers.arrow import as_table
from tefm.tables.readers.table import open_table


class Domains(dict[str, TEFM]):
    """Fitted models by name, all of one language model. `tefm fit a.yaml b.yaml` makes one, `load` reads it.

    >>> domains = Domains.load("model")  # doctest: +SKIP
    >>> domains["flows"].predict("flows.csv")  # doctest: +SKIP
    >>> domains[domains.domain_of("flows.csv")].predict("flows.csv")  # doctest: +SKIP
    """

    def __missing__(self, name: str) -> TEFM:
        raise InputError("no such domain", value=name, remedy=did_you_mean(str(name), self))

    def __repr__(self) -> str:
        return f"Domains({', '.join(self)})"

    @property
    def backbone(self) -> Backbone:
        """The language model that all domains share; one that was added later has an adapter on it."""
        backbones = (model.fitted.classifier.backbone for model in self.values())
        return next(backbone for backbone in backbones if not isinstance(backbone, AdaptedBackbone))

    @property
    def stems(self) -> list[str]:
        """What the code tokens of each domain begin with."""
        return [model.fitted.classifier.vocabulary.stem for model in self.values()]

    def extension(self, config: ModelConfig) -> ModelConfig:
        """The settings of a domain that is added: the language model is there, and is not trained any more."""
        base, given = next(iter(self.values())).fitted.config, config.model_fields_set
        refused = {
            "backbone": "backbone" in given and config.backbone != base.backbone,
            "layers": "layers" in given and config.kept_layers != base.kept_layers,
            "align": "align" in given and config.align not in ("auto", "none"),
            "tune": config.tune.get("trains", "lora") == "full",
        }
        for name, is_refused in refused.items():
            if is_refused:
                raise SettingsError(
                    f"`{name}` would change the language model, which all domains share",
                    value=getattr(config, name),
                    remedy="leave it out, or fit all task files together",
                )
        tune = {"trains": "lora", **config.tune}
        changes = {"backbone": base.backbone, "layers": base.layers, "align": "none", "tune": tune}
        return ModelConfig.checked({**dict(config), **changes})

    def domain_of(self, table: Any) -> str:
        """The one domain that has all its columns in this table."""
        return readable_domain({name: model.preparation for name, model in self.items()}, as_table(table))

    def save(self, folder: str | Path) -> Path:
        """Write all of them as one folder (`tefm.model.bundle`)."""
        return save_domains({name: model.bundle for name, model in self.items()}, Path(folder))

    @classmethod
    def open(cls, folder: str | Path, *, device: str | None = None) -> Domains:
        """Read any saved model as domains: one without domains is the only one, named after its table."""
        folder = Path(folder)
        if domains_of(folder) is not None:
            return cls.load(folder, device=device)
        model = TEFM.load(folder, device=device)
        name = Path(str(model.source_["table"])).stem if model.source_ is not None else folder.resolve().name
        return cls({name if NAME.fullmatch(name) else model.preparation.schema.record: model})

    @classmethod
    def load(cls, folder: str | Path, *, device: str | None = None) -> Domains:
        """Read a saved model with domains; the language model is in memory once."""
        bundles = load_domains(Path(folder), device=device)
        return cls({name: TEFM.of(bundle, device=device) for name, bundle in bundles.items()})


def domain_names(paths: Sequence[Path]) -> dict[str, Path]:
    """The names of domains, which are those of their task files."""
    named: dict[str, Path] = {}
    for path in paths:
        if path.stem in named:
            problem = f"two task files have the same name, {named[path.stem]} and {path}"
            raise SettingsError(problem, remedy="rename one: a domain is named after its task file")
        if not NAME.fullmatch(path.stem):
            raise SettingsError("a domain cannot have this name", value=path.stem, remedy="rename the task file")
        named[path.stem] = path
    return named


def readable_domain(preparations: Mapping[str, Preparation], table: Any, *, query: str | None = None) -> str:
    """The name of the only domain that can read a table."""
    readable = []
    for name, preparation in preparations.items():
        opened = open_table(table, query=query, meds=preparation.schema.meds)
        with suppress(TefmError):
            preparation.readable(opened)
            readable.append(name)
    if len(readable) == 1:
        return readable[0]
    several = "the columns of this table fit several domains"
    problem = several if readable else "no domain has all its columns in this table"
    names = ", ".join(readable or preparations)
    raise InputError(f"{problem}: {names}", file=opened.name, remedy="name the domain, --domain NAME")


def find_domain(
    folder: Path, table: Any, domain: str | None = None, *, query: str | None = None
) -> tuple[str | None, Preparation]:
    """The domain of a saved model that is named or that a table fits, and how it sees tables.

    A model of one domain has no name. No weights are loaded.
    """
    names = domains_of(folder)
    if names is None or domain is not None:
        return domain, load_preparation(folder, domain)
    preparations = {name: load_preparation(folder, name) for name in names}
    name = readable_domain(preparations, table, query=query)
    return name, preparations[name]
