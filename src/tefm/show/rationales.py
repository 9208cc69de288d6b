"""The sections of a report about rationales: how few features carry the answers, and some cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from tefm.rationale.render import article
from tefm.rationale.verify import Faithfulness
from tefm.show.axis import Axis
from tefm.show.figures import Rationales, wilson
from tefm.show.style import figure, read, table
from tefm.show.svg import Series, chart


def faithfulness(found: Rationales) -> str:
    whole, nothing = (next(c for c in found.curves if c.strategy == name) for name in ("everything", "nothing"))
    strategies = list(dict.fromkeys(c.strategy for c in found.curves if c not in (whole, nothing)))
    curves = {name: [c for c in found.curves if c.strategy == name] for name in strategies}
    shares = [c.retention for c in found.curves if c.strategy in strategies]

    def plot(title: str, value: Callable[[Faithfulness], float]) -> str:
        kept = Axis("share of the present features that is kept", 0, 0.02 + max(shares), percent=True)
        every = [wilson(value(c), found.asked) for c in found.curves]
        y = Axis.share("share of the sequences", [bound for one in every for bound in (one.low, one.high)])
        series = [
            _flat("all features", value(whole), kept, 8),
            _flat("nothing", value(nothing), kept, 0),
            *(_curve(name, curves[name], value, found.asked, 1 + n) for n, name in enumerate(strategies)),
        ]
        about = "; ".join(f"{c.strategy} {c.retention:.0%}: {value(c):.3f}" for c in found.curves)
        return figure(title, chart(title, about, kept, y, series))

    rows = [
        [
            c.strategy,
            f"{c.retention:.0%}",
            f"{c.kept:,.1f}",
            str(wilson(c.accuracy, found.asked)),
            str(wilson(c.agreement, found.asked)),
            f"{c.passed:.1%}",
            f"{c.sufficiency:.3f}",
        ]
        for c in found.curves
    ]
    kept = "" if found.kept is None else f", the median one with {found.kept:g} of the features"
    return (
        read(
            "Only the highest ranked features of each record are kept, coded again and read by the same model. The "
            "sooner a curve reaches the line of all features, the fewer features the answer rests on; random features "
            "show what any choice would do."
        )
        + '<div class="side">'
        + plot("Accuracy on what is kept", lambda c: c.accuracy)
        + plot("Same answer as from all features", lambda c: c.agreement)
        + "</div>\n"
        + table(
            ["kept by", "share kept", "features each", "accuracy", "same answer", "pass", "p lost"],
            rows,
            f"{found.asked:,} sequences; features each: per record; p lost: probability of the answer",
        )
        + f"<p>Grown until the answer holds, {found.passed:,} of {found.explained:,} rationales pass the check{kept}; "
        f"of {found.default:,} sequences the model says what it says of empty records, so nothing can be shown to "
        "carry the answer.</p>\n"
    )


def _flat(name: str, y: float, x: Axis, colour: int) -> Series:
    return Series(f"{name}: {y:.3f}", (x.low, x.high), (y, y), colour=colour, dots=False, dashed=True)


def _curve(
    name: str, found: Sequence[Faithfulness], value: Callable[[Faithfulness], float], n: int, colour: int
) -> Series:
    shares = [wilson(value(c), n) for c in found]
    return Series(
        name,
        [c.retention for c in found],
        [share.value for share in shares],
        [share.low for share in shares],
        [share.high for share in shares],
        colour=colour,
    )


def cases(found: Rationales) -> str:
    cards = "".join(
        f"<p>Recorded: <b>{escape(case.rationale.named(case.label))}</b>, the model "
        f"{'agrees' if case.label == case.rationale.predicted else 'is wrong'}.</p>\n"
        + article(case.rationale, f"case{number}")
        for number, case in enumerate(found.cases, start=1)
    )
    wrong = {0: "; no answer is wrong", 1: ", and the only wrong one"}.get(
        found.wrong, f", and one of the {found.wrong:,} wrong ones"
    )
    return (
        read(
            "The smallest set of features that gives the model's answer again when everything else is taken away, "
            f"checked with the model itself: sure and right answers of up to two classes{wrong} among all sequences of "
            "this page. The cards hold values of real records, of features that were not kept too: think of that "
            "before passing this page on."
        )
        + cards
    )
