"""The setup of a run, and the measurements that tables need.

`--quick` makes everything small, to see that it runs; its figures mean nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from tefm.language.config import Start
from tefm.language.smollm2 import NAME as SMOLLM2
from tefm.pipeline.config import KEPT_LAYERS
from tefm_bench.cards import CardRun
from tefm_bench.comparisons import Baseline, Tokens
from tefm_bench.data import BUCKETS, CLINICAL, FLOWS
from tefm_bench.explanations import ExplanationRun
from tefm_bench.feature_lists import Effort
from tefm_bench.predictions import Prediction, Tune
from tefm_bench.rationales import Cost, Rationales
from tefm_bench.table_runs import MOST, SAMPLED, BaselineRun, BesideRun, ModelRun
from tefm_bench.tokenizers import Ceiling, Codes, LabelHead, Recipe

Item = TypeVar("Item")

#: The first split of the tables; settings were chosen on lower ones.
FIRST_SPLIT = 10
#: Learning rates, chosen on validation parts: the whole backbone needs a smaller one, and so does text.
WHOLE_RATE, TEXT_RATE, WHOLE_TEXT_RATE = 2e-4, 5e-4, 1e-4
#: For backbones wider than SmolLM2, not chosen but scaled: `WHOLE_RATE` by the ratio of the widths.
OTHER_RATE = 5e-5
#: The text of ten flows is long: only its last tokens are read.
TEXT_LIMIT = 4_096
QUICK_CODES = {"steps": 30, "hidden": 32, "latent": 16}
QUICK_STEPS = {"steps": 3, "checks": 1, "batch": 8}
QUICK_COST = {"sequences": 2, "queried": 1, "training": 20, "seconds": 0.0}
QUICK_EXPLANATIONS = {"surrogate_steps": 10}
QUICK_EFFORT = Effort(
    sequences=4,
    queried=1,
    defaults=True,
    donors=30,
    samples=32,
    kernel_samples=16,
    anchor_questions=1_000,
    greedy_donors=3,
    masks={"surrogate_steps": 10, "epochs": 1, "questions": 60},
)
QUICK_RATIONALE = {"surrogate_steps": 10, "epochs": 1, "questions": 60}


@dataclass(frozen=True)
class Setup:
    """Data sets, splits and backbones of a run."""

    data: tuple[str, ...] = ("diabetes130-open",)
    splits: tuple[int, ...] = (10, 11, 12)
    #: all tables use the first; the others only appear in the prediction tables
    backbones: tuple[str, ...] = (SMOLLM2,)
    quick: bool = False
    #: the user tables to measure; all of them if empty
    only: tuple[str, ...] = ()

    @property
    def clinical(self) -> tuple[str, ...]:
        return tuple(name for name in self.data if name in CLINICAL)

    @property
    def flows(self) -> tuple[str, ...]:
        """The two tasks of the paper."""
        return tuple(name for name in self.data if name in FLOWS[: 1 if self.quick else 2])

    def few(self, items: Sequence[Item]) -> Sequence[Item]:
        """All items, or two in a quick run."""
        return items[:2] if self.quick else items

    def some_splits(self, data: str) -> tuple[int, ...]:
        """Only the first split for flows, where a table varies many things: nearly all predictions are right."""
        return self.splits[:1] if data in FLOWS else self.splits

    def layers(self, backbone: str) -> int | None:
        """The first blocks that are kept; None keeps all."""
        return 1 if self.quick else KEPT_LAYERS.get(backbone)

    # ---- measurements, one per split ------------------------------------------------------------------------------

    def codes(self, data: str, split: int, recipe: Recipe, buckets: int | None = None, **settings: Any) -> Codes:
        """A tokenizer; settings that equal the defaults do not make another measurement."""
        plain = Codes(data=data, split=split, recipe=recipe)
        defaults = plain.config().tokenizer_config.model_dump()
        changes = {name: value for name, value in settings.items() if value != defaults[name]}
        small = QUICK_CODES if self.quick else {}
        buckets = None if buckets == BUCKETS[data] else buckets
        return plain.model_copy(update={"buckets": buckets, "settings": {**small, **changes}})

    def ceiling(self, codes: Codes) -> Ceiling:
        return Ceiling(codes=codes)

    def label_head(self, codes: Codes) -> LabelHead:
        return LabelHead(codes=codes)

    def tune(self, data: str, **changes: Any) -> Tune:
        """Without masked copies by default; flows are fewer and need more epochs."""
        settings = {"epochs": 6} if data in FLOWS else {}
        settings |= QUICK_STEPS if self.quick else {}
        return Tune(**{"masked_copies": 0, **changes, "settings": {**settings, **changes.get("settings", {})}})

    def prediction(
        self,
        codes: Codes,
        *tunes: Tune,
        backbone: str | None = None,
        whole: bool = False,
        start: Start = "codebook",
        align: Literal["none", "default", "paper"] = "none",
        keep: bool = False,
    ) -> Prediction:
        """A model that reads codes, fine-tuned as `tefm fit` does with `rationale: default`, or with these tunes.

        The default model of the default codes is always kept, because rationales by masks are measured on it.
        """
        backbone = backbone or self.backbones[0]
        layers = None if whole and not self.quick else self.layers(backbone)
        rate = WHOLE_RATE if backbone == SMOLLM2 else OTHER_RATE
        settings = {} if layers else {"learning_rate": rate}
        default_codes = codes == self.codes(codes.data, codes.split, codes.recipe)
        default_model = backbone == self.backbones[0] and align == "none" and start == "codebook"
        default_model = default_model and not (tunes or whole)
        return Prediction(
            codes=codes,
            backbone=backbone,
            layers=layers,
            start=start,
            align=align,
            align_settings=self._align_settings(codes.data, align),
            tunes=tunes or (self.tune(codes.data, masked_copies=1, settings=settings),),
            keep=keep or (default_codes and default_model),
        )

    def _align_settings(self, data: str, align: str) -> dict[str, Any]:
        if align == "none" or self.quick:
            return dict(QUICK_STEPS) if align != "none" else {}
        if data not in FLOWS:
            return {}
        # a flow has 77 numbers: descriptions are long, and those that are turned into codes teach more
        return {"batch": 64, "backward": 0.75, "whole": 0.75, "steps": 1_500} if align == "default" else {"batch": 64}

    def papers(self, data: str, split: int) -> Prediction:
        """The paper's whole recipe, stage by stage: its codes, its alignment, its fine-tuning and its prompt."""
        small = dict(QUICK_STEPS) if self.quick else {}
        tune = Tune(style="full", preset="paper", masked_copies=0, settings=small)
        codes = self.codes(data, split, "paper")
        prediction = self.prediction(codes, tune, whole=True, start="mean", align="paper")
        return prediction.model_copy(update={"align_settings": small})

    def text(self, data: str, split: int, *, backbone: str | None = None, whole: bool = False) -> Prediction:
        """This model on the records as text."""
        backbone = backbone or self.backbones[0]
        layers = None if whole and not self.quick else self.layers(backbone)
        rate = TEXT_RATE if layers else WHOLE_TEXT_RATE
        settings: dict[str, Any] = {"learning_rate": rate, "accumulate": 4}
        long = data in FLOWS
        if backbone != self.backbones[0]:  # scaled as for codes; long texts in a wide backbone need the memory
            settings["learning_rate"] = WHOLE_TEXT_RATE * OTHER_RATE / WHOLE_RATE
            settings |= {"accumulate": 16, "checkpointing": True} if long else {"accumulate": 2}
        settings |= {"epochs": 2, "least": 1, "checks": 2} if long else {}
        settings |= QUICK_STEPS if self.quick else {}
        limit = 64 if self.quick else TEXT_LIMIT if long else None
        return Prediction(
            data=data, split=split, backbone=backbone, layers=layers, limit=limit, tunes=(Tune(settings=settings),)
        )

    def rationales(
        self,
        prediction: Prediction,
        preset: Literal["default", "paper"] = "default",
        compare: bool = False,
        **settings: Any,
    ) -> Rationales:
        """Rationales of a kept model; `compare` ranks with every other method too."""
        small = QUICK_RATIONALE if self.quick else {}
        most, queried = (12, 2) if self.quick else (None, 60)
        return Rationales(
            prediction=prediction,
            preset=preset,
            settings={**small, **settings},
            compare=compare,
            most=most,
            queried=queried,
        )

    def cost(self, rationales: Rationales) -> Cost:
        """The time that ranking takes, with the model of these rationales."""
        cost = Cost(prediction=rationales.prediction, settings=rationales.settings)
        return cost.model_copy(update=QUICK_COST) if self.quick else cost

    # ---- user tables ----------------------------------------------------------------------------------------------

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the user tables."""
        return self.splits

    def model_run(self, table: str, seed: int, *, sample: bool = True, **settings: Any) -> ModelRun:
        """Our model on a user table, fitted with the defaults of `tefm fit` and these settings."""
        return ModelRun(table=table, seed=seed, most=MOST if sample else None, settings=self._fit_settings(settings))

    def beside_run(self, table: str, seed: int, *, fit: int = 0, sample: bool = True) -> BesideRun:
        """Our model, together and its parts alone; further fits of a split start from other seeds."""
        settings = self._fit_settings({"seed": seed + 1_000 * fit} if fit else {})
        return BesideRun(table=table, seed=seed, most=SAMPLED if sample else None, settings=settings)

    def _fit_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        backbone = self.backbones[0]
        other = {} if backbone == SMOLLM2 else {"backbone": backbone}
        small = {"layers": 1, "codes": QUICK_CODES, "tune": QUICK_STEPS} if self.quick else {}
        return {**settings, **other, **small}

    def explanation_run(self, table: str, seed: int, recipe: Recipe) -> ExplanationRun:
        """What every method says about the answers of our model on a user table."""
        settings: dict[str, Any] = {} if recipe == "task-aware" else {"task_aware": False}
        settings |= {"explanations": QUICK_EXPLANATIONS} if self.quick else {}
        run = ExplanationRun(table=table, seed=seed, settings=self._fit_settings(settings))
        return run.model_copy(update={"effort": QUICK_EFFORT}) if self.quick else run

    def card_run(self, table: str, seed: int) -> CardRun:
        """The cards that our model of a user table gets."""
        settings: dict[str, Any] = {"explanations": QUICK_EXPLANATIONS} if self.quick else {}
        run = CardRun(table=table, seed=seed, most=MOST, settings=self._fit_settings(settings))
        return run.model_copy(update={"sequences": 4}) if self.quick else run

    def baseline_run(self, table: str, seed: int, model: str, *, sample: bool = True) -> BaselineRun:
        return BaselineRun(table=table, seed=seed, most=SAMPLED if sample else None, model=model)

    def baseline(self, data: str, split: int, model: str) -> Baseline:
        small = {"steps": 20} if self.quick else {}
        return Baseline(data=data, split=split, model=model, **small)

    def tokens(self, data: str) -> Tokens:
        return Tokens(
            data=data,
            split=self.splits[0],
            backbone=self.backbones[0],
            most=3 if self.quick else 100,
            families=not self.quick,
        )
