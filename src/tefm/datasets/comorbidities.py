"""What two published comorbidity indices say about ICD-9-CM diagnoses, as references for a rationale.

- Charlson index: 17 groups, with the weights of 1987 for death within a year.
- Elixhauser groups: 31 groups, with van Walraven's weights of 2009 for death in hospital.

The codes of both are the enhanced ICD-9-CM lists of Quan et al. (2005).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

from tefm.datasets.base import DATA
from tefm.tables.references import Reference, References

# Where data/comorbidities.csv comes from: the codes are those of the SAS macros of Quan et al., published by the
# Manitoba Centre for Health Policy. Every code and category of ICD-9-CM (HCUP's list of 2015, without E codes: 16,120)
# is in the same groups by the R packages comorbidity and medicalrisk, and by MIMIC-code's elixhauser_quan.sql. What
# differs elsewhere:
# - The paper has ranges, such as 425.4–425.9; the macros list the codes that exist (there is no 425.6).
# - The paper has 47.1 under peripheral vascular disease in Charlson's index, a misprint for 447.1 (macros, packages).
# - MIMIC-code's charlson.sql misses the bare category 174; comorbidities.icd10 misses 333.92; medicalcoder 333.4.
# - Quan has two groups for hypertension, van Walraven one; it has no points, so both have none here.
# - MIMIC-code leaves cardiac arrhythmias out of van Walraven's score; they have 5 points in comorbidity, icd and coder.
# - comorbidities.icd10 has van Walraven's negative weights as positive ones, except for valvular disease.
# - Charlson's weights were revised in 2011 (Quan et al.); these are the original ones.

QUAN = (
    "Quan, Sundararajan, Halfon, Fong, Burnand, Luthi, Saunders, Beck, Feasby, Ghali: Coding algorithms for defining "
    "comorbidities in ICD-9-CM and ICD-10 administrative data, Medical Care 43(11), 2005, 1130–1139, "
    "doi:10.1097/01.mlr.0000182534.19832.83"
)
CHARLSON = (
    "Charlson, Pompei, Ales, MacKenzie: A new method of classifying prognostic comorbidity in longitudinal studies: "
    "development and validation, Journal of Chronic Diseases 40(5), 1987, 373–383, doi:10.1016/0021-9681(87)90171-8"
)
VAN_WALRAVEN = (
    "van Walraven, Austin, Jennings, Quan, Forster: A modification of the Elixhauser comorbidity measures into a point "
    "system for hospital death using administrative data, Medical Care 47(6), 2009, 626–633, "
    "doi:10.1097/MLR.0b013e31819432e5"
)
#: Per index: the citation, its short name, and the outcome that the weights are for.
INDICES = {
    "charlson": (f"{CHARLSON}; codes: {QUAN}", "Charlson", "death within a year"),
    "elixhauser": (f"{VAN_WALRAVEN}; codes: {QUAN}", "van Walraven", "in-hospital death"),
}

#: Diabetes130 cuts all codes to their category except for diabetes, and writes those as numbers: 250 is 250.00.
DIABETES130_SPELLINGS: Mapping[str, str] = MappingProxyType({"250": "250.00"})


@dataclass(frozen=True)
class ComorbidityGroup:
    """One group of an index: its published weight and its codes, where `*` stands for any ending."""

    index: str
    name: str
    weight: int
    codes: tuple[str, ...]

    @property
    def statement(self) -> str:
        """The weight in a sentence."""
        _, author, outcome = INDICES[self.index]
        points = f"{abs(self.weight)} point{'' if abs(self.weight) == 1 else 's'}"
        if self.weight > 0:
            return f"{self.name}: {points} towards {outcome} ({author})."
        if self.weight < 0:
            return f"{self.name}: −{points}, a lower risk of {outcome} ({author})."
        return f"{self.name}: no points, not associated with {outcome} once the other groups are known ({author})."


@cache
def comorbidity_groups() -> tuple[ComorbidityGroup, ...]:
    """The groups of both indices, Charlson's first."""
    text = (DATA / "comorbidities.csv").read_text(encoding="utf-8")
    return tuple(
        ComorbidityGroup(row["index"], row["group"], int(row["weight"]), tuple(row["codes"].split()))
        for row in csv.DictReader(text.splitlines())
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
        Reference(field, value, group.statement, INDICES[group.index][0], float(group.weight))
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
