"""What two published comorbidity indices say about ICD-9-CM diagnoses, as references for a rationale.

- Charlson index: 17 groups, with the weights of 1987 for death within a year.
- Elixhauser groups: 31 groups, with van Walraven's weights of 2009 for death in hospital.

The codes of both are the enhanced ICD-9-CM lists of Quan et al. (2005).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

import yaml

from tefm.tables.references import Reference, References

#: Diabetes130 cuts all codes to their category except for diabetes, and writes those as numbers: 250 is 250.00.
DIABETES130_SPELLINGS: Mapping[str, str] = MappingProxyType({"250": "250.00"})


@dataclass(frozen=True)
class ComorbidityGroup:
    """One group of an index: its published weight and its codes, where `*` stands for any ending."""

    index: str
    name: str
    weight: int
    codes: tuple[str, ...]
    #: whose weights they are, the outcome that they are for, and the citation
    author: str
    outcome: str
    source: str

    @property
    def statement(self) -> str:
        """The weight in a sentence."""
        points = f"{abs(self.weight)} point{'' if abs(self.weight) == 1 else 's'}"
        if self.weight > 0:
            return f"{self.name}: {points} towards {self.outcome} ({self.author})."
        if self.weight < 0:
            return f"{self.name}: −{points}, a lower risk of {self.outcome} ({self.author})."
        known = "once the other groups are known"
        return f"{self.name}: no points, not associated with {self.outcome} {known} ({self.author})."


@cache
def comorbidity_groups() -> tuple[ComorbidityGroup, ...]:
    """The groups of both indices, Charlson's first."""
    published = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return tuple(
        ComorbidityGroup(
            name,
            group["name"],
            group["weight"],
            tuple(group["codes"].split()),
            index["author"],
            index["outcome"],
            f"{index['weights']}; codes: {published['codes']}",
        )
        for name, index in published["indices"].items()
        for group in index["groups"]
    )


def comorbidity_references(
    field: str, *, dotted: bool, spellings: Mapping[str, str] = MappingProxyType({})
) -> References:
    """The groups of both indices as references about a field of ICD-9-CM diagnoses.

    With `dotted`, codes have a dot, and leading zeros may be missing: `250.83`, `042` or `42`. Without, they are as in
    MIMIC: `25083`, `042`. `spellings` are values that stand for another code, such as `DIABETES130_SPELLINGS`.

    A code that is cut short has a reference only if its whole category belongs to a group: `428` has, `V45` has not.

    >>> references = comorbidity_references("diagnoses", dotted=True)
    >>> for reference in references.about("diagnoses", "428.0"):
    ...     print(reference.statement)
    Congestive heart failure: 1 point towards death within a year (Charlson).
    Congestive heart failure: 7 points towards in-hospital death (van Walraven).
    """
    references = References(
        Reference(field, value, group.statement, group.source, float(group.weight))
        for group in comorbidity_groups()
        for code in group.codes
        for value in _written(code, dotted)
    )
    also = (
        replace(reference, value=value)
        for value, code in spellings.items()
        for reference in references.about(field, code)
    )
    return References([*references, *also])


def _written(code: str, dotted: bool) -> tuple[str, ...]:
    """A code of the table as data sets write it."""
    if not dotted:
        return (code.replace(".", ""),)
    short = code.lstrip("0")
    if short == code:
        return (code,)
    if "." in short or not short.endswith("*"):
        return code, short
    return code, short.removesuffix("*"), f"{short.removesuffix('*')}.*"  # not 42*, which would be 428 too
