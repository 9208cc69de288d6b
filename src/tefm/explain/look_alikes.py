"""`LookAlikes`: perturbed samples of training sequences, and what else explanations need; stored with the model.

Shapes: S sequences, N records, D slots, Q classes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tefm.base.errors import InputError
from tefm.base.files import read_tensors, refusing, write_tensors
from tefm.base.progress import progress
from tefm.codes.coder import SlotCoder
from tefm.explain.population import Cases, Population, mixed
from tefm.rationale.config import LookAlikeConfig
from tefm.rationale.masked_model import MaskedModel
from tefm.rationale.surrogate import Agreement, FrozenCodes, Surrogate, SurrogateData, fit_surrogate
from tefm.scoring.calibration import Folded
from tefm.tables.layout import Layout
from tefm.tables.sequences import Sequences, stored

#: Versions of each training sequence, mixed with another one, that the surrogate learns in addition to the whole.
MIXTURES = 3
#: What is stored of the answers to the population.
ANSWERS = ("p_SQ", "answers_S")
#: Training sequences that are stored so that a rule can have real cases: how many per donor, and the most slots of all.
PER_DONOR, STORED_SLOTS = 25, 1 << 24


@dataclass(frozen=True, eq=False)
class LookAlikes:
    """The population that look-alikes come from, and the surrogate that the search asks before the model."""

    config: LookAlikeConfig
    network: FrozenCodes
    surrogate: Surrogate
    population: Population
    #: training sequences that may satisfy a rule, with their labels; the model has not been asked about them
    cases: Cases
    agreement: Agreement

    @classmethod
    def fit(
        cls,
        coder: SlotCoder,
        model: MaskedModel,
        training: Sequences,
        population: tuple[Sequences, NDArray[np.int64]],
        everyone: tuple[Sequences, NDArray[np.int64]],
        config: LookAlikeConfig,
    ) -> LookAlikes:
        """Learn from training sequences, whole and mixed.

        Look-alikes come from the first sequences of the `population`; rules have their real cases among `everyone`.
        Both come with class numbers, −1 where there is no label. The surrogate stands for the whole model, or for its
        language model where a head answers beside that.
        """
        if len(training) < 2 or not len(population[0]):
            raise InputError(
                f"{len(training)} sequence(s) are too few to learn from", remedy="use at least 2, ideally 1,000"
            )
        learned = model.language_model or model
        network, rng = FrozenCodes.of(coder), np.random.default_rng(config.seed)
        most = max(2, config.questions // (1 + MIXTURES))
        if len(training) > most:
            training = training.select(np.sort(rng.permutation(len(training))[:most]))
        with progress("predicting mixed training records", 1 + MIXTURES) as advance:
            words = training.texts is not None
            answers = SurrogateData.ask(network, training, learned, read=FrozenCodes.latents, words=words)
            advance(1)
            for _ in range(MIXTURES):
                mixture = mixed(training, rng, texts=words)
                answers += SurrogateData.ask(network, mixture, learned, read=FrozenCodes.latents, words=words)
                advance(1)
        surrogate, agreement = fit_surrogate(answers, learned, config)
        occurring, labels_S = population
        drawn = occurring.select(np.arange(min(len(occurring), config.donors)))
        p_SQ = model(drawn)
        donors = Population(drawn, labels_S[: len(drawn)], p_SQ, model.decide(p_SQ))
        # texts say more than slots, and hardly ever repeat: no more of them is stored than look-alikes need
        most = len(donors) if words else PER_DONOR * config.donors
        return cls(config, network, surrogate, donors, cases_of(*everyone, most), agreement)

    def folded(self, calibration: Folded) -> LookAlikes:
        """What explanations of groups of classes need; the surrogate still knows the classes themselves."""
        population, group_Q = self.population, np.array([*calibration.group_Q, -1])
        p_SQ = calibration.fold(population.p_SQ)
        labels_S, answers_S = group_Q[population.labels_S], calibration.predict(p_SQ)
        grouped = replace(population, p_SQ=p_SQ, labels_S=labels_S, answers_S=answers_S)
        cases = replace(self.cases, labels_S=group_Q[self.cases.labels_S])
        return replace(self, population=grouped, cases=cases)

    # ---- on disk ----------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write one safetensors file in one step."""
        arrays: dict[str, NDArray[Any]] = {}
        words: dict[str, Any] = {}
        for name, part in (("population", self.population), ("cases", self.cases)):
            arrays |= {f"{name}.{key}": of for key, of in _arrays(part).items()}
            words[f"{name}.texts"] = None if part.slots.texts is None else list(part.slots.texts)
        arrays |= {f"population.{name}": getattr(self.population, name) for name in ANSWERS}
        tensors = {name: torch.from_numpy(np.array(of, order="C")) for name, of in arrays.items()}
        tensors |= {f"surrogate.{name}": value.contiguous() for name, value in self.surrogate.state_dict().items()}
        write_tensors(path, tensors, config=self.config.model_dump(), agreement=asdict(self.agreement), **words)

    @classmethod
    def load(cls, coder: SlotCoder, path: Path) -> LookAlikes:
        """Read what `save` wrote; `coder` is the one that it was learned with."""
        with refusing(path, "part of the model that explains"):
            tensors, facts = read_tensors(path)
            config = LookAlikeConfig.stored(facts["config"])
            learned = _part(tensors, "surrogate")
            classes = tensors["population.p_SQ"].shape[1]
            # the surrogate of an older model has not learned the codes of the entity
            network = FrozenCodes.of(coder, profile=learned["inner.weight"].shape[1] == coder.latent_width)
            surrogate = Surrogate(network.width, classes, config.surrogate_hidden, words="words.weight" in learned)
            surrogate.load_state_dict(learned)
            answers = [tensors[f"population.{name}"].numpy() for name in ANSWERS]
            # older models have stored the population alone
            facts = {"population.texts": facts.get("texts")} | facts
            population = Population(*_read(tensors, facts, "population", coder.layout), *answers)
            cases = Cases(*_read(tensors, facts, "cases" if "cases.x_ND" in tensors else "population", coder.layout))
            agreement = Agreement(**facts["agreement"])
        return cls(config, network, surrogate.requires_grad_(False), population, cases, agreement)


def cases_of(slots: Sequences, labels_S: NDArray[np.int64], most: int) -> Cases:
    """The first training sequences, up to the limits of their number and of their slots."""
    held = np.searchsorted(slots.starts[1:] * slots.x_ND.shape[1], STORED_SLOTS, side="right")
    most = min(len(slots), most, max(1, int(held)))
    return Cases(slots.select(np.arange(most)), labels_S[:most])


def _arrays(cases: Cases) -> dict[str, NDArray[Any]]:
    """Slots as a type that safetensors knows."""
    x_ND = cases.slots.x_ND
    x_ND = x_ND if x_ND.dtype == np.uint8 else x_ND.astype(np.int32)
    return {"x_ND": x_ND, "starts": cases.slots.starts, "labels_S": cases.labels_S}


def _read(
    tensors: dict[str, torch.Tensor], facts: dict[str, Any], part: str, layout: Layout
) -> tuple[Sequences, NDArray[np.int64]]:
    """Sequences of slots and their labels, as they were stored."""
    x_ND, starts, labels_S = (tensors[f"{part}.{name}"].numpy() for name in ("x_ND", "starts", "labels_S"))
    return Sequences(x_ND.astype(layout.dtype), starts, texts=stored(facts[f"{part}.texts"])), labels_S


def _part(tensors: dict[str, torch.Tensor], part: str) -> dict[str, torch.Tensor]:
    """The tensors of one part under their own names."""
    return {name.removeprefix(f"{part}."): of for name, of in tensors.items() if name.startswith(f"{part}.")}
