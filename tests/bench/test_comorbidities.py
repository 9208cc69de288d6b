"""The comorbidity indices: known codes in known groups, in both spellings, and nothing beyond them."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from tefm_bench.datasets.comorbidities import (
    DIABETES130_SPELLINGS,
    comorbidity_groups,
    comorbidity_references,
)

from tefm.tables.references import Reference

#: What the references cite.
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
DOTTED = comorbidity_references("diagnoses", dotted=True, spellings=DIABETES130_SPELLINGS)
PLAIN = comorbidity_references("diagnoses", dotted=False)

#: Codes with the groups and weights that they have in each index.
CHARLSON_CODES = {
    "410.71": {"Myocardial infarction": 1},
    "412": {"Myocardial infarction": 1},
    "428.0": {"Congestive heart failure": 1},
    "398.91": {"Congestive heart failure": 1},
    "404.03": {"Congestive heart failure": 1, "Renal disease": 2},
    "440.20": {"Peripheral vascular disease": 1},
    "447.1": {"Peripheral vascular disease": 1},
    "V43.4": {"Peripheral vascular disease": 1},
    "437.3": {"Peripheral vascular disease": 1, "Cerebrovascular disease": 1},
    "434.91": {"Cerebrovascular disease": 1},
    "331.2": {"Dementia": 1},
    "496": {"Chronic pulmonary disease": 1},
    "714.0": {"Rheumatic disease": 1},
    "531.40": {"Peptic ulcer disease": 1},
    "571.2": {"Mild liver disease": 1},
    "070.54": {"Mild liver disease": 1},
    "250.00": {"Diabetes without chronic complications": 1},
    "250.83": {"Diabetes without chronic complications": 1},
    "250.40": {"Diabetes with chronic complications": 2},
    "250.7": {"Diabetes with chronic complications": 2},
    "342.90": {"Hemiplegia or paraplegia": 2},
    "585.6": {"Renal disease": 2},
    "V45.11": {"Renal disease": 2},
    "V56.0": {"Renal disease": 2},
    "172.9": {"Cancer, including leukaemia and lymphoma": 2},
    "203.00": {"Cancer, including leukaemia and lymphoma": 2},
    "572.2": {"Moderate or severe liver disease": 3},
    "456.21": {"Moderate or severe liver disease": 3},
    "197.7": {"Metastatic solid tumour": 6},
    "042": {"AIDS/HIV": 6},
}
ELIXHAUSER_CODES = {
    "428.0": {"Congestive heart failure": 7},
    "425.5": {"Congestive heart failure": 7, "Alcohol abuse": 0},
    "404.03": {"Congestive heart failure": 7, "Hypertension, complicated": 0, "Renal failure": 5},
    "427.31": {"Cardiac arrhythmias": 5},
    "426.13": {"Cardiac arrhythmias": 5},
    "V45.01": {"Cardiac arrhythmias": 5},
    "424.1": {"Valvular disease": -1},
    "415.19": {"Pulmonary circulation disorders": 4},
    "416.8": {"Pulmonary circulation disorders": 4, "Chronic pulmonary disease": 3},
    "440.20": {"Peripheral vascular disorders": 2},
    "401.9": {"Hypertension, uncomplicated": 0},
    "403.91": {"Hypertension, complicated": 0, "Renal failure": 5},
    "334.1": {"Paralysis": 7, "Other neurological disorders": 6},
    "345.90": {"Other neurological disorders": 6},
    "250.00": {"Diabetes, uncomplicated": 0},
    "250.40": {"Diabetes, complicated": 0},
    "250.83": {"Diabetes, complicated": 0},
    "244.9": {"Hypothyroidism": 0},
    "V56.0": {"Renal failure": 5},
    "571.2": {"Liver disease": 11, "Alcohol abuse": 0},
    "571.5": {"Liver disease": 11},
    "531.70": {"Peptic ulcer disease, excluding bleeding": 0},
    "042": {"AIDS/HIV": 0},
    "203.00": {"Lymphoma": 9},
    "197.7": {"Metastatic cancer": 12},
    "172.9": {"Solid tumour without metastasis": 4},
    "714.0": {"Rheumatoid arthritis or collagen vascular disease": 0},
    "286.6": {"Coagulopathy": 3},
    "278.01": {"Obesity": -4},
    "263.9": {"Weight loss": 6},
    "276.1": {"Fluid and electrolyte disorders": 5},
    "280.0": {"Blood loss anaemia": -2},
    "280.9": {"Deficiency anaemia": -2},
    "303.90": {"Alcohol abuse": 0},
    "304.00": {"Drug abuse": -7},
    "V65.42": {"Drug abuse": -7},
    "295.90": {"Psychoses": 0},
    "296.54": {"Psychoses": 0, "Depression": -3},
    "311": {"Depression": -3},
}
#: Codes just outside of the groups.
OUTSIDE = (
    "173.9",  # skin cancer other than melanoma
    "411.1", "413.9", "414.01",  # coronary disease without infarction
    "427.5", "426.11",  # cardiac arrest, first-degree block
    "344.8", "336.1", "584.9", "583.9", "588.8", "V42.8", "V45.81",
    "070.20", "573.0", "572.0", "285.9", "287.0", "305.1", "278.1", "V65.40", "296.00", "300.00", "447.2",
    "047.1", "47.1",  # what the paper misprints for 447.1
)  # fmt: skip


def groups(matches: tuple[Reference, ...], citation: str) -> dict[str, float | None]:
    return {row.statement.split(": ")[0]: row.weight for row in matches if row.source.startswith(citation)}


@pytest.mark.parametrize("code", CHARLSON_CODES)
def test_charlson(code: str) -> None:
    for matches in (DOTTED.about("diagnoses", code), PLAIN.about("diagnoses", code.replace(".", ""))):
        assert groups(matches, CHARLSON) == CHARLSON_CODES[code]


@pytest.mark.parametrize("code", ELIXHAUSER_CODES)
def test_elixhauser(code: str) -> None:
    for matches in (DOTTED.about("diagnoses", code), PLAIN.about("diagnoses", code.replace(".", ""))):
        assert groups(matches, VAN_WALRAVEN) == ELIXHAUSER_CODES[code]


@pytest.mark.parametrize("code", OUTSIDE)
def test_a_code_outside_of_the_groups_has_no_reference(code: str) -> None:
    assert DOTTED.about("diagnoses", code) == ()
    assert PLAIN.about("diagnoses", code.replace(".", "")) == ()


def test_every_group_has_a_known_code() -> None:
    expected = {"charlson": CHARLSON_CODES, "elixhauser": ELIXHAUSER_CODES}
    for group in comorbidity_groups():
        assert any(known.get(group.name) == group.weight for known in expected[group.index].values()), group.name


# ---- spellings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["042", "42", "042.9", "42.9"])
def test_dotted_codes_may_lack_their_leading_zeros(code: str) -> None:
    assert groups(DOTTED.about("diagnoses", code), CHARLSON) == {"AIDS/HIV": 6}


def test_a_code_without_its_zeros_is_not_the_beginning_of_another() -> None:
    assert groups(DOTTED.about("diagnoses", "420.91"), CHARLSON) == {}
    assert groups(DOTTED.about("diagnoses", "428"), VAN_WALRAVEN) == {"Congestive heart failure": 7}
    assert groups(DOTTED.about("diagnoses", "70.54"), VAN_WALRAVEN) == {"Liver disease": 11}
    assert groups(DOTTED.about("diagnoses", "93.0"), CHARLSON) == {"Peripheral vascular disease": 1}
    for code in ("4", "40", "14", "19", "70", "93", "705.4", "930.1"):  # 40 is 040, not a beginning of 401
        assert DOTTED.about("diagnoses", code) == ()
    assert PLAIN.about("diagnoses", "42") == ()  # MIMIC writes 042


def test_a_code_that_is_cut_short_has_a_reference_only_if_its_whole_category_has() -> None:
    assert groups(DOTTED.about("diagnoses", "585"), CHARLSON) == {"Renal disease": 2}
    for code in ("V45", "425", "427", "572"):
        assert groups(DOTTED.about("diagnoses", code), VAN_WALRAVEN) == {}
    assert groups(DOTTED.about("diagnoses", "404"), VAN_WALRAVEN) == {"Hypertension, complicated": 0}


def test_diabetes130_writes_250_for_250_00() -> None:
    assert groups(DOTTED.about("diagnoses", "250"), CHARLSON) == {"Diabetes without chronic complications": 1}
    assert groups(DOTTED.about("diagnoses", "250"), VAN_WALRAVEN) == {"Diabetes, uncomplicated": 0}
    assert comorbidity_references("diagnoses", dotted=True).about("diagnoses", "250") == ()


def test_the_field_is_the_one_that_was_asked_for() -> None:
    references = comorbidity_references("icd", dotted=True)
    assert {row.field for row in references} == {"icd"}
    assert references.about("diagnoses", "428") == ()


# ---- sentences and table --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "sentences"),
    [
        (
            "428.0",
            [
                "Congestive heart failure: 1 point towards death within a year (Charlson).",
                "Congestive heart failure: 7 points towards in-hospital death (van Walraven).",
            ],
        ),
        ("278.00", ["Obesity: −4 points, a lower risk of in-hospital death (van Walraven)."]),
        ("424.0", ["Valvular disease: −1 point, a lower risk of in-hospital death (van Walraven)."]),
        (
            "401.9",
            [
                "Hypertension, uncomplicated: no points, not associated with in-hospital death once the other groups "
                "are known (van Walraven)."
            ],
        ),
    ],
)
def test_a_weight_is_one_sentence(code: str, sentences: list[str]) -> None:
    assert [row.statement for row in DOTTED.about("diagnoses", code)] == sentences


def test_every_reference_cites_the_weights_and_the_codes() -> None:
    for row in (*DOTTED, *PLAIN):
        assert row.source in (f"{CHARLSON}; codes: {QUAN}", f"{VAN_WALRAVEN}; codes: {QUAN}")
        assert row.source.count("doi:10.") == 2


def test_the_table_is_that_of_the_papers() -> None:
    weights = {
        index: Counter(group.weight for group in comorbidity_groups() if group.index == index)
        for index in ("charlson", "elixhauser")
    }
    assert weights["charlson"] == {1: 10, 2: 4, 3: 1, 6: 2}
    assert weights["elixhauser"].total() == 31
    assert weights["elixhauser"].total() - weights["elixhauser"][0] == 21  # "Twenty-one of the 30 groups"
    assert sum(group.weight for group in comorbidity_groups() if group.index == "charlson") == 33


def test_every_pattern_is_a_category_or_a_code_and_no_two_of_a_group_overlap() -> None:
    for group in comorbidity_groups():
        for code in group.codes:
            assert re.fullmatch(r"(\d{3}|V\d\d)(\*|\.\d\*|\.\d\d)", code), code
        beginnings = [code.removesuffix("*") for code in group.codes]
        for beginning in beginnings:
            assert [other for other in beginnings if other.startswith(beginning)] == [beginning]
