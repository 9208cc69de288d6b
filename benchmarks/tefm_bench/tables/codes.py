"""Tables about the codes: what they keep, how they are built, how many tokens they take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tefm_bench.data import CLINICAL
from tefm_bench.experiments import Setup
from tefm_bench.measurement import Figures
from tefm_bench.table import Column, Figure, Row
from tefm_bench.tables.language import quality
from tefm_bench.tables.published import (
    BACKBONES,
    HIERARCHY,
    RECONSTRUCTION,
    SHAPES,
    SHAPES_ALIGNED,
    SHAPES_PREDICTED,
    STANDS_FOR,
)
from tefm_bench.tables.spec import (
    FIDELITY,
    PREDICTION,
    PROTOCOL,
    SHAPE,
    TITLES,
    Line,
    Lookup,
    Pick,
    Place,
    TableSpec,
    ceiling,
    fidelity,
    places,
    tuned,
)
from tefm_bench.tokenizers import Recipe

#: The paper's objective, and the two kinds of ours.
OBJECTIVES: tuple[Recipe, ...] = ("paper", "unsupervised", "task-aware")
PREFIXES = ("a", "a+b", "a+b+c")


def _objective(place: Place) -> tuple[str, str]:
    return TITLES[place.data], "the paper's objective" if place.recipe == "paper" else place.recipe


# ---- reconstruction ---------------------------------------------------------------------------------------------


def _reconstruction(setup: Setup, _: Lookup) -> Iterator[Line]:
    for place in places(setup, (*setup.clinical, *setup.flows), OBJECTIVES):
        codes = place.codes()
        paper = RECONSTRUCTION.get(STANDS_FOR.get(place.data, "")) if place.recipe == "paper" else None
        ceilings = ((map(setup.ceiling, codes), ceiling),) if place.data in CLINICAL else ()
        yield Line(_objective(place), ((codes, fidelity), *ceilings), paper)


RECONSTRUCTED = TableSpec(
    name="reconstruction",
    title="Reconstruction from codes",
    keys=("data", "codes"),
    columns=(
        *FIDELITY,
        Column("field_accuracy", "field accuracy", 3, "up"),
        Column("recall", "recall", 3, "up"),
        Column("precision", "precision", 3, "up"),
        Column("utilisation", "utilisation", 3, "up"),
        Column("unique", "distinct codes per record", 3),
        Column("ceiling", "ceiling", 3, "up"),
        Column("raw", "raw slots", 3),
    ),
    lines=_reconstruction,
    about=f"""\
What the decoder reconstructs from the {SHAPE} codes of test records. *Slot accuracy* (the paper's "slot
AUC") is the share of slots reconstructed exactly, *all-mode* the same for always guessing the most common value. *±1*
also accepts the neighbouring bucket. *NMSE* is the squared error of slots scaled to [0, 1], where a wrong category
counts as 1. *Field accuracy* leaves out the flags of sets; *recall* and *precision* are those of the values present in
sets. *Utilisation* is the share of a level's entries that test records use, in the worst level. *Ceiling* is the AUROC
of LightGBM on the quantised latent of each sequence's last record, *raw slots* the same on the uncompressed record.
Task-aware codes were trained on a teacher that saw the labels of the training part, so they carry part of the
answer.""",
)


# ---- hierarchy --------------------------------------------------------------------------------------------------


def _prefix(level: int) -> Pick:
    def pick(figures: Figures) -> dict[str, float | None]:
        distances = figures["hierarchy"][level]
        return {
            "intra": distances["intra_mean"],
            "intra_sd": distances["intra_std"],
            "inter": distances["inter_mean"],
            "inter_sd": distances["inter_std"],
            "ratio": distances["ratio"],
        }

    return pick


def _hierarchy(setup: Setup, _: Lookup) -> Iterator[Line]:
    for place in places(setup, (*setup.clinical, *setup.flows), OBJECTIVES):
        papers = place.recipe == "paper" and STANDS_FOR.get(place.data) == "clinical"
        for level, prefix in enumerate(PREFIXES):
            shows = ((place.codes(), _prefix(level)),)
            yield Line((*_objective(place), prefix), shows, HIERARCHY[level] if papers else None)


HIERARCHICAL = TableSpec(
    name="hierarchy",
    title="Codes as a hierarchy",
    keys=("data", "codes", "prefix"),
    columns=(
        Column("intra", "intra distance", 3, "down"),
        Column("intra_sd", "SD of intra pairs", 3),
        Column("inter", "inter distance", 3),
        Column("inter_sd", "SD of inter pairs", 3),
        Column("ratio", "ratio", 3, "down"),
    ),
    lines=_hierarchy,
    about=f"""\
Euclidean distance between two test records (slots scaled to [0, 1]) that share the first one, two or three
numbers of their {SHAPE} code (*intra*) and between two that do not (*inter*), over up to 5,000 pairs each, with the
standard deviation over the pairs, as the paper prints it; ± is over the splits. The smaller the ratio, the more alike
are records with the same prefix. Distances depend on the number of slots and their scale, so only the ratios compare
with the paper's.""",
)


# ---- shapes -----------------------------------------------------------------------------------------------------


def _shapes(setup: Setup, _: Lookup) -> Iterator[Line]:
    for data in (*setup.clinical, *setup.flows):
        recipes: tuple[Recipe, ...] = ("unsupervised", "task-aware") if data in setup.clinical else ("unsupervised",)
        for place in places(setup, [data], recipes):
            for shape in setup.few(tuple(SHAPES[STANDS_FOR[data]])):
                yield _shape(place, shape)
    for place in places(setup, setup.clinical, ("paper",)):
        tune = place.tune(style="full", preset="paper")
        for entries in setup.few((64, 128, 256, 512)):
            codes = place.codes(entries=entries)
            predictions = [setup.prediction(code, tune, whole=True, start="mean") for code in codes]
            keys = (TITLES[place.data], "as the paper trains", "3", str(entries))
            yield Line(keys, ((codes, fidelity), (predictions, tuned())))


def _shape(place: Place, shape: tuple[int, int]) -> Line:
    setup, (levels, entries) = place.setup, shape
    codes = place.codes(some=True, levels=levels, entries=entries)
    shows = [(codes, fidelity), (map(setup.prediction, codes), tuned())]
    if place.is_clinical:
        shows.append((map(setup.ceiling, codes), ceiling))
    keys = (*place.keys, str(levels), str(entries))
    if place.recipe != "unsupervised":
        return Line(keys, tuple(shows))
    aligned = [setup.prediction(code, place.tune(), align="default") for code in codes[:1]]
    return Line(keys, (*shows, (aligned, _aligned)), _published_shape(STANDS_FOR[place.data], shape))


def _aligned(figures: Figures) -> dict[str, float | None]:
    measured = quality(figures)
    return {"aligned": measured["slot_accuracy"], "aligned_close": measured["close_accuracy"]}


def _published_shape(stands_for: str, shape: tuple[int, int]) -> Mapping[str, float]:
    names = ("slot_accuracy", "close_accuracy", "nmse", "collisions", "utilisation")
    published = dict(zip(names, SHAPES.get(stands_for, {}).get(shape, ()), strict=False))
    if shape in SHAPES_ALIGNED.get(stands_for, {}):
        published["aligned"], published["aligned_close"] = SHAPES_ALIGNED[stands_for][shape]
    if shape in SHAPES_PREDICTED.get(stands_for, {}):
        published["accuracy"], published["macro_f1"] = SHAPES_PREDICTED[stands_for][shape]
    return published


SHAPED = TableSpec(
    name="shapes",
    title="Shapes: K levels of C entries",
    keys=("data", "codes", "K", "C"),
    columns=(
        *FIDELITY,
        Column("utilisation", "utilisation", 3, "up"),
        Column("collisions", "collisions", 3, "down"),
        Column("ceiling", "ceiling", 3, "up"),
        Column("aligned", "aligned slot accuracy", 4, "up"),
        Column("aligned_close", "aligned ±1", 4, "up"),
        *PREDICTION[:4],
    ),
    lines=_shapes,
    about=f"""\
The paper's ablation of K and C. Each line has all three parts: reconstruction, codes written from words
(*aligned*, one split) and prediction. {PROTOCOL} The paper's accuracy and macro F1 are shown next to the unsupervised
codes. *Collisions* is the paper's rate, one minus the distinct codes per test record; records that are equal share a
code and count too. *Utilisation* is the share of a level's entries that test records use, in the worst level. The
lines "as the paper trains" test whether the paper's drop at K3-C512 (82.1 to 73.0) comes from rows that are hardly
trained: plain codes, all 30 blocks, new rows from the mean of the vocabulary, no alignment, 5 epochs at 1e-5.""",
)


# ---- tokens -----------------------------------------------------------------------------------------------------


def _tokens(setup: Setup, lookup: Lookup) -> Iterator[Row]:
    for data in (*setup.clinical, *setup.flows):
        paper = BACKBONES[STANDS_FOR[data]]
        for line in (lookup(setup.tokens(data)) or {"rows": []})["rows"]:
            keys = {"data": TITLES[data], "form": line["format"], "tokenizer": line["tokenizer"]}
            figures = {"mean": Figure((line["mean"],)), "share": Figure((line["share_of_prose"],))}
            forms = next((forms for name, forms in paper.items() if name.startswith(line["tokenizer"])), None)
            form = {"prose": 0, "codes, full prompt": 1}.get(line["format"])
            yield Row(keys, figures, {"mean": float(forms[form][0])} if forms and form is not None else {})


COUNTED = TableSpec(
    name="tokens",
    title="Tokens",
    keys=("data", "form", "tokenizer"),
    columns=(Column("mean", "tokens", 1, "down"), Column("share", "share of prose", 4, "down")),
    lines=_tokens,
    about="""\
Tokens per sequence (mean of 100 sequences), with the question for codes, without it for text. *Share of
prose* compares with the same records as prose, as the paper's token retention does. For flows, CSV and TOON are the
shortest text. The paper counts 3,938 tokens for a MIMIC-III patient and 5,639 for ten flows (Qwen3); it does not print
its prose, and our records differ. Codes carry numbers as 5 to 32 buckets, the text prints them as they are in the
table: *bucket numbers* is text with the same buckets, one line per record with the number of each, and the members of
sets.""",
)
