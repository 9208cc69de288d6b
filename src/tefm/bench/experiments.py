"""What a run of tables is made on, and the measurements they ask for in the words of the tables.

`--quick` makes everything small, to see that it runs: its figures mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from tefm.bench.comparisons import Baseline, Tokens
from tefm.bench.data import BUCKETS, CLINICAL, DATA, FLOWS
from tefm.bench.measurement import Found, Measurement
from tefm.bench.predictions import Prediction, Tune
from tefm.bench.rationales import Cost, Rationales
from tefm.bench.table import Figure, Row
from tefm.bench.tokenizers import Ceiling, Codes, Recipe
from tefm.language.config import Start
from tefm.language.smollm2 import NAME as SMOLLM2
from tefm.task import KEPT_LAYERS

Ask = Callable[[Measurement], Found | None]
Item = TypeVar("Item")

#: The first split that tables are made on; those below were for choosing settings.
FIRST_SPLIT = 10
#: Learning rates by what is tuned, chosen on validation parts: a whole backbone wants a smaller one, and so does text.
WHOLE_RATE, TEXT_RATE, WHOLE_TEXT_RATE = 2e-4, 5e-4, 1e-4
#: For wider backbones than SmolLM2, not chosen but scaled: the rate of the whole one, by the ratio of the widths.
OTHER_RATE = 5e-5
#: Text of ten flows is long: its last tokens, and fewer looks at validation.
TEXT_LIMIT = 4_096
QUICK_CODES = {"steps": 30, "hidden": 32, "latent": 16, "settle": 1, "checks": 2}
QUICK_STEPS = {"steps": 3, "checks": 1, "batch": 8}
QUICK_COST = {"sequences": 2, "asked": 1, "learned": 20, "seconds": 0.0}
QUICK_RATIONALE = {"surrogate_steps": 10, "epochs": 1, "questions": 60, "depth": 2}


@dataclass(frozen=True)
class Plan:
    """Data sets, splits and backbones of a run."""

    data: tuple[str, ...] = ("diabetes130",)
    splits: tuple[int, ...] = (10, 11, 12)
    #: the first is the one that all tables are made with
    backbones: tuple[str, ...] = (SMOLLM2,)
    quick: bool = False

    @property
    def clinical(self) -> tuple[str, ...]:
        return tuple(name for name in self.data if name in CLINICAL)

    @property
    def flows(self) -> tuple[str, ...]:
        """The two tasks of the paper."""
        return tuple(name for name in self.data if name in FLOWS[: 1 if self.quick else 2])

    def few(self, items: Sequence[Item]) -> Sequence[Item]:
        """All of them, or two when it is quick."""
        return items[:2] if self.quick else items

    def some_splits(self, data: str) -> tuple[int, ...]:
        """Of flows the first alone, where many things are varied: they are told apart almost always."""
        return self.splits[:1] if data in FLOWS else self.splits

    def layers(self, backbone: str) -> int | None:
        return 1 if self.quick else KEPT_LAYERS.get(backbone)

    # ---- measurements, one per split ------------------------------------------------------------------------------

    def codes(self, data: str, split: int, recipe: Recipe, buckets: int | None = None, **settings: Any) -> Codes:
        """A tokenizer; what is said but is the default anyway is not another measurement."""
        plain = Codes(data=data, split=split, recipe=recipe)
        usual = plain.config().tokenizer_config.model_dump()
        changes = {name: value for name, value in settings.items() if value != usual[name]}
        small = QUICK_CODES if self.quick else {}
        buckets = None if buckets == BUCKETS[data] else buckets
        return plain.model_copy(update={"buckets": buckets, "settings": {**small, **changes}})

    def ceiling(self, codes: Codes) -> Ceiling:
        return Ceiling(codes=codes)

    def tune(self, data: str, **changes: Any) -> Tune:
        """Without masked copies unless they are asked for; flows are fewer, and take more passes."""
        settings = {"epochs": 6} if data in FLOWS else {}
        settings |= QUICK_STEPS if self.quick else {}
        return Tune(**{"masked_copies": 0, **changes, "settings": {**settings, **changes.get("settings", {})}})

    def reading(
        self,
        codes: Codes,
        *tunes: Tune,
        backbone: str | None = None,
        whole: bool = False,
        random_body: bool = False,
        start: Start = "codebook",
        align: Literal["none", "default", "paper"] = "none",
        keep: bool = False,
    ) -> Prediction:
        """A model that reads codes: as `tefm fit` makes it (and kept, for rationales ask it), or with these tunes."""
        backbone = backbone or self.backbones[0]
        layers = None if whole and not self.quick else self.layers(backbone)
        rate = WHOLE_RATE if backbone == SMOLLM2 else OTHER_RATE
        settings = {} if layers else {"learning_rate": rate}
        given = tunes or (self.tune(codes.data, masked_copies=1, settings=settings),)
        usual = codes == self.codes(codes.data, codes.split, codes.recipe)
        plain = not (tunes or whole or random_body) and backbone == self.backbones[0] and align == "none"
        return Prediction(
            codes=codes,
            backbone=backbone,
            layers=layers,
            random_body=random_body,
            start=start,
            align=align,
            align_settings=self._align_settings(codes.data, align),
            tunes=given,
            keep=keep or (usual and plain and start == "codebook"),
        )

    def _align_settings(self, data: str, align: str) -> dict[str, Any]:
        if align == "none" or self.quick:
            return dict(QUICK_STEPS) if align != "none" else {}
        if data not in FLOWS:
            return {}
        # a flow says 77 numbers: long descriptions, of which those that go to codes teach more
        return {"batch": 64, "backward": 0.75, "whole": 0.75, "steps": 1_500} if align == "default" else {"batch": 64}

    def text(self, data: str, split: int, *, backbone: str | None = None, whole: bool = False) -> Prediction:
        """The same model on the records as text."""
        backbone = backbone or self.backbones[0]
        layers = None if whole and not self.quick else self.layers(backbone)
        rate = TEXT_RATE if layers else WHOLE_TEXT_RATE
        settings: dict[str, Any] = {"learning_rate": rate, "accumulate": 4}
        long = data in FLOWS
        settings |= {"epochs": 2, "least": 1, "checks": 2} if long else {}
        settings |= QUICK_STEPS if self.quick else {}
        limit = 64 if self.quick else TEXT_LIMIT if long else None
        return Prediction(
            data=data, split=split, backbone=backbone, layers=layers, limit=limit, tunes=(Tune(settings=settings),)
        )

    def rationales(
        self,
        reading: Prediction,
        preset: Literal["default", "paper"] = "default",
        others: bool = False,
        **settings: Any,
    ) -> Rationales:
        small = QUICK_RATIONALE if self.quick else {}
        most, asked = (12, 2) if self.quick else (None, 60)
        return Rationales(
            reading=reading, preset=preset, settings={**small, **settings}, others=others, most=most, asked=asked
        )

    def cost(self, rationales: Rationales) -> Cost:
        """What it costs to rank with the judge of these rationales."""
        asked = Cost(reading=rationales.reading, settings=rationales.settings)
        return asked.model_copy(update=QUICK_COST) if self.quick else asked

    def baseline(self, data: str, split: int, model: str, task: str | None = None) -> Baseline:
        small = {"steps": 20} if self.quick else {}
        return Baseline(data=data, split=split, model=model, task=None if task == DATA[data][0] else task, **small)

    def tokens(self, data: str) -> Tokens:
        return Tokens(
            data=data,
            split=self.splits[0],
            backbone=self.backbones[0],
            most=3 if self.quick else 100,
            families=not self.quick,
        )


# ---- rows ---------------------------------------------------------------------------------------------------------

Pick = Callable[[Found], Mapping[str, float | None]]


def row(
    keys: Mapping[str, str],
    asked: Iterable[Measurement],
    ask: Ask,
    pick: Pick,
    published: Mapping[str, float] | None = None,
) -> Row:
    """One line out of the measurements of its splits; what was not measured is not there."""
    picked = [pick(found) for measurement in asked if (found := ask(measurement)) is not None]
    names = dict.fromkeys(name for one in picked for name in one)
    figures = {}
    for name in names:
        values = tuple(float(value) for one in picked if (value := one.get(name)) is not None)
        if values:
            figures[name] = Figure(values)
    return Row(keys, figures, published or {})


def joined(*rows: Row) -> Row:
    """The figures of several rows in one line; the first one's keys."""
    figures = {name: figure for one in rows for name, figure in one.figures.items()}
    published = {name: figure for one in rows for name, figure in one.published.items()}
    return Row(rows[0].keys, figures, published)


def known(rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows that say anything."""
    return tuple(one for one in rows if one.figures or one.published)


def scores(found: Mapping[str, Any], part: str = "test") -> dict[str, float | None]:
    """The figures of a scored part, without their intervals."""
    names = ("accuracy", "macro_f1", "auroc", "auprc", "brier", "ece")
    return {name: found[part][name]["value"] for name in names}


def tuned(number: int = 0) -> Pick:
    """The scores and tokens of one of a reading's tunes."""

    def pick(found: Found) -> dict[str, float | None]:
        tune = found["tunes"][number]
        return {**scores(tune), "tokens": tune["tokens"]}

    return pick
