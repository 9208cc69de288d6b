"""`LookAlikes`: what a fitted model needs to explain its answers, learned once and stored with it.

Shapes: S sequences, N records, D slots, Q classes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tefm.base.errors import InputError
from tefm.base.files import read_tensors, refusing, write_tensors
from tefm.base.progress import progress
from tefm.codes.coder import SlotCoder
from tefm.explain.conditions import Condition
from tefm.explain.counts import Counts, Observed
from tefm.explain.population import Population, mixed
from tefm.rationale.config import LookAlikeConfig
from tefm.rationale.masked_model import MaskedModel
from tefm.rationale.surrogate import Agreement, FrozenCodes, Surrogate, SurrogateData, fit_surrogate
from tefm.scoring.calibration import Folded
from tefm.tables.sequences import Sequences, stored

#: Versions of each training sequence, mixed with another one, that the surrogate learns in addition to the whole.
MIXTURES = 3
#: What is stored of the answers to the population.
ANSWERS = ("p_SQ", "answers_S", "labels_S")


@dataclass(frozen=True, eq=False)
class LookAlikes:
    """The population that look-alikes come from, and the surrogate that the search asks before the model."""

    config: LookAlikeConfig
    network: FrozenCodes
    surrogate: Surrogate
    population: Population
    #: of all training sequences, for corroboration
    counts: Counts
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

        Look-alikes come from the first sequences of the `population`; `everyone` is counted for corroboration. Both
        come with class numbers, −1 where there is no label. The surrogate stands for the whole model, or for its
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
        donors = Population(drawn, p_SQ, model.decide(p_SQ), labels_S[: len(drawn)])
        counts = Counts.of(*everyone, network.layout, p_SQ.shape[1])
        return cls(config, network, surrogate, donors, counts, agreement)

    def observed(self, condition: Condition, of_class: int) -> Observed:
        """How often a class was observed where a condition is met: of all training sequences, or of those stored."""
        if len(condition.slots) == condition.span == 1 and not condition.back and condition.after is None:
            return self.counts.in_last(condition.slots[0], condition.values, of_class)
        return self.population.observed(self.population.has((condition,)), of_class)

    def folded(self, calibration: Folded) -> LookAlikes:
        """What explanations of groups of classes need; the surrogate still knows the classes themselves."""
        population, group_Q = self.population, np.array([*calibration.group_Q, -1])
        p_SQ = calibration.fold(population.p_SQ)
        labels_S, answers_S = group_Q[population.labels_S], calibration.predict(p_SQ)
        grouped = replace(population, p_SQ=p_SQ, labels_S=labels_S, answers_S=answers_S)
        counts = {name: calibration.fold(of) for name, of in vars(self.counts).items() if name != "start_D"}
        return replace(self, population=grouped, counts=replace(self.counts, **counts))

    # ---- on disk ----------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Write one safetensors file in one step."""
        population, slots = self.population, self.population.slots
        arrays = {"population.x_ND": slots.x_ND.astype(np.int32), "population.starts": slots.starts}
        arrays |= {f"population.{name}": getattr(population, name) for name in ANSWERS}
        arrays |= {f"counts.{field.name}": getattr(self.counts, field.name) for field in fields(Counts)}
        tensors = {name: torch.from_numpy(np.ascontiguousarray(of)) for name, of in arrays.items()}
        tensors |= {f"surrogate.{name}": value.contiguous() for name, value in self.surrogate.state_dict().items()}
        write_tensors(
            path,
            tensors,
            config=self.config.model_dump(),
            agreement=asdict(self.agreement),
            texts=None if slots.texts is None else list(slots.texts),
            gaps=None if slots.gaps is None else list(slots.gaps),
        )

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
            counts = Counts(**{name: of.numpy() for name, of in _part(tensors, "counts").items()})
            arrays = {name: of.numpy() for name, of in _part(tensors, "population").items()}
            x_ND = arrays["x_ND"].astype(coder.layout.dtype)
            slots = Sequences(x_ND, arrays["starts"], texts=stored(facts["texts"]), gaps=facts["gaps"])
            population = Population(slots, *(arrays[name] for name in ANSWERS))
            agreement = Agreement(**facts["agreement"])
        return cls(config, network, surrogate.requires_grad_(False), population, counts, agreement)


def _part(tensors: dict[str, torch.Tensor], part: str) -> dict[str, torch.Tensor]:
    """The tensors of one part under their own names."""
    return {name.removeprefix(f"{part}."): of for name, of in tensors.items() if name.startswith(f"{part}.")}
