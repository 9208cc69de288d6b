"""Tables about explanations: how precise the named features are, and the cards that users get."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from tefm_bench import cards, explanations
from tefm_bench.experiments import Setup
from tefm_bench.explanations import Ahead
from tefm_bench.feature_lists import METHODS, OURS, SIZES, Effort
from tefm_bench.measurement import Figures
from tefm_bench.table import Column
from tefm_bench.tables.spec import RECIPES, Line, Lookup, Pick, TableSpec
from tefm_bench.tokenizers import Recipe
from tefm_bench.user_tables import ALL_TABLES

MORTALITY = "diabetes130_mortality"
#: The tables that are measured; a quick run takes those with several records per sequence.
EXPLAINED = (MORTALITY, "unsw_nb15", "bpic2012")
QUICK = (MORTALITY, "bpic2012")
#: The tables whose cards are measured.
CARDS = (MORTALITY, "unsw_nb15", "bpic2012", "icu_4h")
COMPARED = SIZES[1:]
EFFORT = Effort()


def _recipes(setup: Setup) -> Iterable[Recipe]:
    return RECIPES[:1] if setup.quick else RECIPES


def _of(summary: Callable[[Figures, str], Mapping[str, float | None]], method: str) -> Pick:
    """What a summary says of one method."""
    return lambda figures: summary(figures, method)


def _ahead(figures: Figures) -> dict[str, float | None]:
    parts = (("ahead", "value"), ("low", "low"), ("high", "high"))
    return {f"{name}_{size}": figures[f"{size}"][of] for size in COMPARED for name, of in parts} if figures else {}


def _explanations(setup: Setup, _: Lookup) -> Iterator[Line]:
    for name in (name for name in (QUICK if setup.quick else EXPLAINED) if not setup.only or name in setup.only):
        for recipe in _recipes(setup):
            runs = tuple(setup.explanation_run(name, seed, recipe) for seed in setup.seeds)
            for method in METHODS:
                ahead = () if method == OURS else (((Ahead(runs=runs, method=method),), _ahead),)
                shows = ((runs, _of(explanations.summary, method)), *ahead)
                yield Line((ALL_TABLES[name].title, recipe, method), shows)


EXPLANATIONS = TableSpec(
    name="explanations",
    title="Explanations",
    keys=("table", "codes", "method"),
    columns=(
        Column("sequences", "sequences", 0),
        *(Column(f"precision_{size}", f"precision at {size}", 3, "up") for size in SIZES),
        Column("verified", "verified", 2, "up"),
        Column("size", "size", 1, "down"),
        Column("coverage", "coverage", 4),
        *(Column(f"flips_{size}", f"flips at {size}", 2, "up") for size in COMPARED),
        Column("settled", "settled by tefm explain", 2, "up"),
        Column("opposite", "opposite verified", 2, "down"),
        Column("default", "default answers", 2),
        Column("questions", "questions", 0, "down"),
        Column("seconds", "seconds", 2, "down"),
        *(
            column
            for size in COMPARED
            for column in (
                Column(f"ahead_{size}", f"ours ahead at {size}", 3),
                Column(f"low_{size}", "from", 3),
                Column(f"high_{size}", "to", 3),
            )
        ),
    ),
    lines=_explanations,
    of_users=True,
    about=f"""\
A model fitted by the code of `tefm fit` with its defaults answers {EFFORT.sequences} test sequences of each
seed, drawn at random among those whose answer is not a default one (an answer that nearly everyone gets needs no
features; *default answers* is their share of the test sequences). Every method names features of the same sequences, as
sets that count as at most 1, 3, 5 and 10 features; the whole value of a set counts as many as it has members.
*Precision* is the share of {EFFORT.donors} look-alikes with the same answer: they share the features, have everything
else from another training sequence, and the language model answers. Their donors are the half of the stored training
sequences that no method uses. *Verified* means that one of the four sets has a precision of at least 0.9, by an exact
interval whose level accounts for the four sets; *size* and *coverage* (the share of the stored training sequences that
have the features) are medians over the smallest set that passes. *Flips* is how often the answer changes when only the
features are replaced. *Settled by tefm explain* is the product's own verdict, and *opposite verified* how often the
features of a sequence verify the next most probable answer by the same check. *Questions* are look-alikes that the
language model answers for one explanation (ours: to find and check a set; the effects on the card take more); *seconds*
are the median for one explanation, for ours with the whole card. What a method learns beforehand is not counted.

What counts as a feature was chosen on figures of the same Diabetes130 test patients, so this table flatters ours.

*Ours ahead* is the precision of our set minus that of the method's, on the same sequences of all seeds, with a 95%
interval from a bootstrap over sequences.

Methods that rank slots name their first features. *SHAP* and *integrated gradients* explain the surrogate that the
paper's extractor learns with, where a slot that is left out is absent; *dual fidelity* and *prediction fidelity* are
that extractor, learned from {EFFORT.masks["questions"] // 3:,} training sequences of a model that was fitted without
masked copies, as is the default. The *log-odds table* knows only how often training sequences with a value have the
answer as their label. *Anchors* is the beam search of its authors, over our look-alikes; it stops at a set that it
finds precise enough, however small, and after {EFFORT.anchor_questions:,} questions takes the best so far. *KernelSHAP*
replaces features by the values of {EFFORT.kernel_donors} donors, {EFFORT.kernel_samples} times. The *search on the
language model* is ours with the model in place of the surrogate, on {EFFORT.greedy_donors} donors: an upper reference.
These three explain at most {EFFORT.queried} sequences per seed, and begin no further one after {EFFORT.patience:.0f}
seconds; *sequences* says how many there were. A method whose library is missing has 0.""",
)


def _cards(setup: Setup, _: Lookup) -> Iterator[Line]:
    for name in (name for name in (QUICK if setup.quick else CARDS) if not setup.only or name in setup.only):
        yield Line((ALL_TABLES[name].title,), (([setup.card_run(name, seed) for seed in setup.seeds], cards.summary),))


CARDS_OF_A_MODEL = TableSpec(
    name="cards",
    title="Cards",
    keys=("table",),
    columns=(
        Column("cards", "cards", 0),
        Column("settled", "settled", 2, "up"),
        Column("both", "by both checks", 2, "up"),
        Column("real", "with 20 real cases", 2, "up"),
        Column("coverage", "coverage", 4, "up"),
        Column("conditions", "conditions", 1, "down"),
        Column("within_made_up", "made-up precision within", 2, "up"),
        Column("within_real", "real precision within", 2, "up"),
        Column("random", "random rules verified", 3, "down"),
        Column("opposite", "opposite settled", 3, "down"),
        Column("gap", "largest gap", 4, "down"),
        Column("questions", "questions", 0, "down"),
        Column("seconds", "seconds", 2, "down"),
        Column("auroc", "AUROC", 3, "up"),
        Column("default", "default answers", 2),
    ),
    lines=_cards,
    of_users=True,
    on_request=True,
    about=f"""\
The cards of `tefm explain` for test sequences whose answer is not a default one, of models fitted by the code of `tefm
fit` with its defaults. *Settled*: a rule of at most ten conditions passes one of the two checks or both; *with 20 real
cases*, *coverage* (the median share of the stored training sequences that satisfy the rule) and *conditions* are about
these. Half of the donors make the cards. *Made-up precision within*: of rules that made-up cases bear out, how often
{cards.JUDGED} made-up cases from the other half agree with the interval on the card; *real precision within*: the same
for real cases that bear a rule out, and training and test sequences that the card has not asked about, where there are
at least 20. *Random rules* have as many conditions, drawn from the values of the same sequence. *Opposite settled*:
another rule of the same sequence settles another answer. *Largest gap*: between the joint effect and the sum of its
shares. *Questions* are cases that the model was asked about, *seconds* the time of one explanation, both as medians;
the seconds depend on the machine and on what else runs there.""",
)
