"""The report of a model as HTML, out of its `Figures`: one section per question a reader has."""

from __future__ import annotations

from html import escape

from tefm import __version__
from tefm.fit import COUNTED, FEW
from tefm.show.axis import Axis
from tefm.show.codes import fidelity, hierarchy, use
from tefm.show.figures import Figures
from tefm.show.rationales import cases, faithfulness
from tefm.show.style import bounds, figure, interval, read, table, whole_page
from tefm.show.svg import Series, chart
from tefm.show.terminal import FEW as FEW_TO_RESAMPLE

#: Classes that have a row of their own.
CLASSES = 25
METRICS = {
    "auroc": "AUROC",
    "auprc": "AUPRC",
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "brier": "Brier (lower is better)",
    "ece": "ECE (lower is better)",
}


def report_page(figures: Figures) -> str:
    """One page that stands alone."""
    sections = [
        ("scores", "How well it predicts", _scores(figures)),
        ("tokens", "Accuracy against tokens", _tokens(figures)),
        ("calibration", "Whether its probabilities mean what they say", _calibration(figures)),
    ]
    if figures.codes is not None:
        sections += [
            ("use", "How the codebooks are used", use(figures.codes)),
            ("fidelity", "What the codes keep, field by field", fidelity(figures.codes)),
            ("hierarchy", "Records that share a code", hierarchy(figures.codes)),
        ]
    if figures.rationales is not None:
        sections += [
            ("faithfulness", "How few features carry the answer", faithfulness(figures.rationales)),
            ("cases", "Cases", cases(figures.rationales)),
        ]
    sections.append(("cost", "What it costs", _cost(figures)))
    links = "".join(f'<li><a href="#{anchor}">{escape(name)}</a></li>' for anchor, name, _ in sections)
    return whole_page(
        figures.title,
        _head(figures)
        + f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n'
        + "".join(
            f'<section id="{anchor}" aria-labelledby="{anchor}-title">\n<h2 id="{anchor}-title">{escape(name)}</h2>\n'
            f"{inside}</section>\n"
            for anchor, name, inside in sections
        )
        + f'<p class="soft">Written by tefm {__version__}. Intervals are 95%: bootstrap over sequences for scores, '
        "Wilson's for shares.</p>",
    )


def _head(figures: Figures) -> str:
    facts = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(words)}</dd></div>\n" for name, words in figures.facts.items()
    )
    warnings = "".join(f'<p class="warning">{escape(warning)}</p>\n' for warning in figures.warnings)
    return f'<dl class="facts">{facts}</dl>\n{warnings}'


# ---- predictions ------------------------------------------------------------------------------------------------


def _scores(figures: Figures) -> str:
    about = (
        f"AUROC, AUPRC and Brier are about `{figures.label} = {figures.positive}`. "
        if figures.positive is not None
        else "AUROC, AUPRC and macro F1 are means over the classes that occur, each against the rest: a rare class "
        "weighs as much as a frequent one. Brier is summed over them. "
    )
    sequences = figures.methods[0].scores["n"]
    few = ": too few for the intervals to hold" if sequences < FEW_TO_RESAMPLE else ""
    rows = [[title, *(interval(method.scores[name]) for method in figures.methods)] for name, title in METRICS.items()]
    rows.append(["tokens per sequence", *(f"{m.tokens:,.1f}" if m.tokens else "0" for m in figures.methods)])
    beside = (
        "The tabular models learned from the same training sequences."
        if len(figures.methods) > 1
        else "No tabular model stands beside it: give the task file to `tefm report` to have them fitted."
    )
    return (
        read(
            f"{about}Brackets hold the 95% interval: where those of two models overlap widely, the sequences do not "
            f"tell which is better. {beside}"
        )
        + table(["figure", *(method.name for method in figures.methods)], rows, f"{sequences:,} sequences{few}")
        + _class_by_class(figures)
    )


def _class_by_class(figures: Figures) -> str:
    if not figures.by_class:
        return ""
    rows = [
        [
            one.name,
            f"{one.sequences:,}" + (" (few)" if one.sequences < FEW else ""),
            *("–" if share is None else f"{share:.3f}" for share in (one.recall, one.precision, one.f1)),
        ]
        for one in figures.by_class[:CLASSES]
    ]
    more = len(figures.by_class) - len(rows)
    return table(
        [figures.label, "sequences", "recall", "precision", "F1"],
        rows,
        f"{figures.methods[0].name}, class by class; few: below {FEW}, chance decides",
    ) + (f'<p class="soft">and {more:,} more, less frequent</p>\n' if more else "")


def _tokens(figures: Figures) -> str:
    ours, *others = figures.methods
    counted = min(COUNTED, ours.scores["n"])
    own = figures.tokens[0].tokenizer
    texts = [account for account in figures.tokens if account.tokenizer == own and "question" not in account.format]
    x = Axis.around(
        "tokens per sequence, mean (logarithmic)", [ours.tokens, *(t.mean for t in texts)], log=True, room=0.12
    )
    accuracy = ours.scores["accuracy"]
    known = [method.scores["accuracy"] for method in figures.methods]
    y = Axis.share("accuracy", [bound for one in known for bound in bounds(one)], room=0.15)
    series = [
        Series(
            f"{method.name}, 0 tokens: {method.scores['accuracy']['value']:.3f}",
            (x.low, x.high),
            (method.scores["accuracy"]["value"],) * 2,
            colour=2 + number,
            dots=False,
            dashed=True,
        )
        for number, method in enumerate(others)
    ]
    low, high = bounds(accuracy)
    series.append(
        Series(
            f"{ours.name}, {ours.tokens:,.1f} tokens: {interval(accuracy)}",
            (ours.tokens,),
            (accuracy["value"],),
            (low,),
            (high,),
            line=False,
            size=10,
        )
    )
    about = "; ".join([*(one.name for one in series), *(f"{t.format}: {t.mean:,.0f} tokens" for t in texts)])
    plot = chart("Accuracy against tokens", about, x, y, series, marks=[(t.mean, t.format) for t in texts])
    rows = [
        [a.format, a.tokenizer, f"{a.mean:,.1f}", f"{a.median:,.0f}", f"{a.largest:,}", f"{a.share_of_prose:.1%}"]
        for a in figures.tokens
    ]
    return (
        read(
            "Left is cheaper, up is better. Dashed lines are models that read the table itself and need no tokens; the "
            "marks below say what the same records would cost as text, which this model was not trained on."
        )
        + figure("Accuracy against tokens", plot)
        + table(
            ["form", "tokenizer", "mean", "median", "largest", "of prose"],
            rows,
            f"tokens per sequence, of the first {counted:,}",
            words=2,
        )
    )


def _calibration(figures: Figures) -> str:
    about = "its answer" if figures.positive is None else f"{figures.label} = {figures.positive}"
    what = f"the probability of {about}"
    bins = figures.calibration
    unit = Axis(f"{what} that the model gave", 0, 1)
    plot = chart(
        "Calibration",
        "; ".join(f"said {b.said:.2f}, was {b.share} of {b.sequences}" for b in bins),
        unit,
        Axis("share of the sequences where it was so", 0, 1),
        [
            Series("perfect", (0, 1), (0, 1), colour=0, dots=False, dashed=True),
            Series(
                "this model, with 95% interval",
                [b.said for b in bins],
                [b.share.value for b in bins],
                [b.share.low for b in bins],
                [b.share.high for b in bins],
            ),
        ],
    )
    rows = [[f"{b.said:.3f}", str(b.share), f"{b.sequences:,}"] for b in bins]
    return (
        read(
            "Points on the dashed line are probabilities that can be taken at their word; below it the model is too "
            "sure, above it not sure enough. A long bar means few sequences."
        )
        + f'<div class="side">{figure("Calibration", plot)}<div>'
        + table(["said", "was so", "sequences"], rows, f"{what}, in ten ranges")
        + "</div></div>\n"
    )


# ---- cost -------------------------------------------------------------------------------------------------------


def _cost(figures: Figures) -> str:
    ours, cost = figures.methods[0], figures.cost
    explain = cost.seconds_to_explain
    rows = [
        ["tokens that the model reads", f"{ours.tokens:,.1f} tokens per sequence"],
        ["predicting, from the table to probabilities", f"{cost.sequences_per_second:,.1f} sequences per second"],
        ["explaining and checking one sequence", "–" if explain is None else f"{explain:,.2f} seconds"],
    ]
    return read(f"Measured once while this page was made, on {cost.machine}; another load gives other times.") + table(
        ["what", "cost"], rows, "cost"
    )
