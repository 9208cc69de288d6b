"""Does evidence outside the model support the features that a method cites: the training data, and published weights?

Shapes: S sequences, N records of all of them, T records of one, D slots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tefm.explain.check import joint_effect
from tefm.explain.conditions import Condition
from tefm.explain.reasons import EFFECT, Donors, Reasons
from tefm.explain.slot_features import Feature, features_of
from tefm.tables.references import References
from tefm_bench.feature_lists import OURS, RANDOM, SHAP, Scores, Subject
from tefm_bench.measurement import Figures

#: What the data can say of a feature.
OUTCOMES = ("supported", "contradicted", "unclear", "too few")
#: The class that the published weights are about, as the tables with references call it.
DEATH = "died"


def corroboration(subject: Subject, basis: Mapping[str, Any], references: References | None) -> Figures:
    """How often the data support what ours, SHAP and chance cite; and the effects of diagnoses with a weight."""
    reasons: list[Reasons] = basis[OURS]
    cited = {name: list(_cited(subject, reasons, name, basis.get(name))) for name in (OURS, SHAP, RANDOM)}
    counts = {name: Counter(outcome for of in found for outcome in of) for name, found in cited.items() if found}
    return {
        "counts": {
            name: {"cited": of.total(), **{outcome: of[outcome] for outcome in OUTCOMES}} for name, of in counts.items()
        },
        "cited": {name: found for name, found in cited.items() if found},
        "weights": [] if references is None else list(_weighed(subject, references, basis)),
    }


def _cited(subject: Subject, reasons: list[Reasons], name: str, scores_ND: Scores | None) -> Iterator[list[str]]:
    """Per sequence: what the data say of each cited feature. Ours cites some; the others cite as many."""
    if name != OURS and scores_ND is None:
        return
    rng = np.random.default_rng(subject.seed)
    for number, of in enumerate(reasons):
        x_TD = subject.slots[number]
        shares = () if of.joint is None else of.joint.shares
        cited: list[tuple[Condition, bool]] = [
            (condition, share.value > 0) for condition, share in zip(of.found.rule, shares, strict=False)
        ]
        if name != OURS:
            assert scores_ND is not None
            features = features_of(x_TD, subject.layout)
            single = [feature for feature in features if len(feature.slots) == feature.span == 1]
            at = slice(int(subject.slots.starts[number]), int(subject.slots.starts[number + 1]))
            # chance has no sign of its own
            sign_TD = rng.choice([-1.0, 1.0], x_TD.shape) if name == RANDOM else 1.0
            signed_TD = scores_ND[at] * sign_TD
            score_F = np.array([signed_TD[feature.record, feature.slots[0]] for feature in single])
            first = np.argsort(-np.abs(score_F), kind="stable")[: len(cited)].tolist()
            cited = [(Condition.of(single[i], x_TD), bool(score_F[i] > 0)) for i in first if score_F[i]]
        yield [_outcome(subject, number, condition, raises) for condition, raises in cited]


def _outcome(subject: Subject, number: int, condition: Condition, raises: bool) -> str:
    population = subject.parts.population
    observed = population.observed((condition,), int(subject.answers_S[number]))
    return observed.corroborates(raises)


def _weighed(subject: Subject, references: References, basis: Mapping[str, Any]) -> Iterator[Figures]:
    """Every recorded diagnosis with a published weight: by how much it raises the probability of death."""
    model, population, layout = subject.model, subject.population, subject.layout
    death = subject.fitted.classes.index(DEATH)
    rng = np.random.default_rng(subject.seed)
    for number in range(len(subject.slots)):
        sequence, x_TD = subject.slots.select([number]), subject.slots[number]
        weights: dict[Feature, float] = {}
        for feature in features_of(x_TD, layout):
            slot = layout.slots[feature.slots[0]]
            if slot.member is not None and len(feature.slots) == feature.span == 1:
                found = references.about(slot.field, slot.member)
                weight = sum(of.weight or 0.0 for of in found if of.source.startswith("van Walraven"))
                weights |= {feature: weight} if weight else {}
        donors_B = Donors.of(population, len(x_TD)).checks[0][:EFFECT]
        p_Q = subject.p_SQ[number].tolist()
        # SHAP's scores are about the answer
        sign = 1.0 if int(subject.answers_S[number]) == death else -1.0
        for feature, weight in weights.items():
            (effect,) = joint_effect(
                model, population, sequence, (Condition.of(feature, x_TD),), death, p_Q, donors_B
            ).shares
            row: Figures = {
                "sequence": number,
                "weight": weight,
                OURS: round(effect.value, 6),
                "low": round(effect.low, 6),
                "high": round(effect.high, 6),
                RANDOM: float(rng.choice([-1.0, 1.0])),
            }
            if SHAP in basis:
                place = int(subject.slots.starts[number]) + feature.record
                row[SHAP] = round(sign * float(basis[SHAP][place, feature.slots[0]]), 6)
            yield row


# ---- what the table shows ---------------------------------------------------------------------------------------


def summary(figures: Figures, name: str) -> dict[str, float | None]:
    """Shares of the cited features by what the data say, and of the weighted diagnoses whose sign agrees."""
    found = figures["corroboration"]
    counts = found["counts"].get(name)
    if counts is None:
        return {}
    total = sum(counts[outcome] for outcome in OUTCOMES)
    values: dict[str, float | None] = {"cited": counts["cited"]}
    values |= {outcome: counts[outcome] / total if total else None for outcome in OUTCOMES}
    pairs = [row for row in found["weights"] if name in row]
    if pairs:
        agrees = [np.sign(row[name]) == np.sign(row["weight"]) for row in pairs]
        values |= {"weighted": float(len(pairs)), "agrees": float(np.mean(agrees))}
        certain = [agreed for agreed, row in zip(agrees, pairs, strict=True) if row["low"] > 0 or row["high"] < 0]
        values["agrees_certain"] = float(np.mean(certain)) if certain else None
    return values
