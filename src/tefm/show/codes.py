"""The sections of a report about codes: how they are used, what they keep, and whether they are a hierarchy."""

from __future__ import annotations

from collections import Counter

from tefm.show.axis import Axis
from tefm.show.figures import Codes, Map
from tefm.show.markdown import inline
from tefm.show.style import decimal, figure, read, spread, table
from tefm.show.svg import Series, bars, chart, columns

#: First codes of the map that have a colour.
COLOURED = 8


def use(codes: Codes) -> str:
    plots = ""
    for level, counts in zip(codes.use, codes.counts, strict=True):
        shares = [count / codes.records for count in counts]
        name = f"Level {level.level}"
        used = f"{level.used} of {level.entries} entries used ({level.utilisation:.0%})"
        note = f"{used}, perplexity {level.perplexity:.1f}, most used {level.top_share:.1%}"
        y = Axis("share of the records", 0, max(shares) * 1.05, percent=True)
        plots += figure(name, columns(f"{name}: use of its entries", note, shares, y, 1 / level.entries), note)
    return (
        read(
            f"One column per entry of a level's codebook, the most used first, over {codes.records:,} records; the "
            "dashed line is even use. The perplexity is the number of entries that evenly used ones would be."
        )
        + f'<div class="side">{plots}</div>\n'
    )


def fidelity(codes: Codes) -> str:
    found = codes.fidelity
    fields = sorted(found.fields, key=lambda f: f.accuracy - f.mode_accuracy, reverse=True)
    bar_rows = [(f.name, f.accuracy, f.mode_accuracy, f"{f.accuracy:.3f}") for f in fields]
    half = (len(bar_rows) + 1) // 2 if len(bar_rows) > 12 else len(bar_rows)
    names = ("codes", "always the most common value")
    plots = "".join(
        figure(
            title,
            bars(title, "; ".join(f"{r[0]}: {r[3]}, most common value {r[2]:.3f}" for r in part), part, names),
        )
        for title, part in (
            ("Share of values that come back, most gained first", bar_rows[:half]),
            ("Least gained", bar_rows[half:]),
        )
        if part
    )
    rows = [
        ["slot accuracy", f"{found.slot_accuracy:.4f}", f"{found.mode_slot_accuracy:.4f}"],
        ["slot accuracy, ±1 bucket", f"{found.close_accuracy:.4f}", f"{found.mode_close_accuracy:.4f}"],
        ["normalised squared error (lower is better)", f"{found.nmse:.4f}", f"{found.mode_nmse:.4f}"],
        ["field accuracy", decimal(found.field_accuracy), decimal(found.mode_field_accuracy)],
        ["recall of present members of sets", decimal(found.recall), "–" if found.recall is None else "0.0000"],
        ["precision of members of sets", decimal(found.precision), "–"],
    ]
    said = "".join(f"<li>{inline(f.problem)}. {inline(f.remedy.capitalize())}.</li>\n" for f in codes.findings)
    return (
        read(
            "A bar that ends right of its tick tells more about the field than always guessing its most common value "
            "would; one that ends at its tick tells nothing. Fields with several values at once are counted member by "
            "member, of which most are absent."
        )
        + f'<div class="side">{plots}</div>\n'
        + table(["figure", "codes", "most common value"], rows, f"{found.records:,} records, {found.slots:,} slots")
        + (f"<p>What the doctor says:</p>\n<ul>{said}</ul>\n" if said else "")
    )


def hierarchy(codes: Codes) -> str:
    rows = [
        [p.name, f"{p.groups:,}", spread(p.intra_mean, p.intra_std), spread(p.inter_mean, p.inter_std),
         decimal(p.ratio), f"{p.partnered:.0%}"]
        for p in codes.hierarchy
    ]  # fmt: skip
    known = [(p.length, p.ratio) for p in codes.hierarchy if p.ratio is not None]
    ratios = ""
    if len(known) > 1:
        plot = chart(
            "Distance within over distance between",
            "; ".join(f"{length} shared: {ratio:.3f}" for length, ratio in known),
            Axis.of_names("numbers that two records share", [str(length) for length, _ in known]),
            Axis("mean distance, same prefix / other prefix", 0, max(1.0, *(ratio for _, ratio in known))),
            [Series("", range(len(known)), [ratio for _, ratio in known])],
        )
        ratios = figure("Distance within over distance between", plot, "lower: the prefix groups records better")
    shared = codes.collisions
    return (
        read(
            "On the map near points are records with similar codes; colours are the eight most common first numbers. "
            "If the codes are a hierarchy, a colour stays together, and the ratio below falls with every number that "
            "two records share."
        )
        + f'<div class="side">{_map(codes.map)}{ratios}</div>\n'
        + table(
            ["prefix", "groups", "distance, same prefix", "other prefix", "ratio", "records with a partner"],
            rows,
            "distances between records, mean ± standard deviation of up to 5,000 pairs",
        )
        + f"<p>{shared.distinct_codes:,} codes for {shared.distinct_records:,} distinct records: "
        f"{shared.sharing_rate:.1%} of the {shared.records:,} records share their code with another one.</p>\n"
    )


def _map(found: Map) -> str:
    common = [code for code, _ in Counter(found.code).most_common(COLOURED)]
    groups: dict[int | None, list[int]] = {code: [] for code in (None, *common)}
    for row, code in enumerate(found.code):
        groups[code if code in common else None].append(row)
    series = [
        Series(
            f"{'others' if code is None else code}: {len(rows)}",
            [found.x[row] for row in rows],
            [found.y[row] for row in rows],
            colour=0 if code is None else 1 + common.index(code),
            line=False,
            size=2.2 if code is None else 3.2,
        )
        for code, rows in groups.items()
        if rows
    ]
    plot = chart(
        "Map of records",
        "; ".join(f"first number {one.name} records" for one in series),
        Axis.around("first principal component of the quantised latents", found.x),
        Axis.around("second", found.y),
        series,
        height=280,
    )
    return figure(
        "Map of records, by the first number of their code",
        plot,
        f"{len(found.x):,} records (below: number and records); both axes show {found.variance:.0%} of the variance",
    )
