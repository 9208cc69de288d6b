"""Tables of a report about the data: results by group, class balance, missing values, records per sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tefm.scoring.breakdown import GroupScores
from tefm.show.figures import FieldGroups, Figures
from tefm.show.html import HtmlTable, decimal

#: Fields whose groups are shown at once; the others can be opened.
FIELDS = 6
#: Fields with missing values that are shown.
MISSING = 15
#: Classes that get a row of their own.
CLASSES = 25


@dataclass(frozen=True)
class DataView:
    """What the templates show of the data."""

    figures: Figures

    # ---- results by group -----------------------------------------------------------------------------------------

    @property
    def groups(self) -> HtmlTable | None:
        """The fields that make the largest difference."""
        fields = self.figures.groups[:FIELDS]
        return self._table(fields, "by group, the fields with the largest differences first") if fields else None

    @property
    def other_groups(self) -> HtmlTable | None:
        fields = self.figures.groups[FIELDS:]
        return self._table(fields, "by group, further fields") if fields else None

    @property
    def other_fields(self) -> int:
        return len(self.figures.groups[FIELDS:])

    def _table(self, fields: Sequence[FieldGroups], caption: str) -> HtmlTable:
        two = self.figures.positive is not None
        header = ["group", "sequences", "accuracy"]
        header += [f"{self.figures.label} = {self.figures.positive}", "AUROC"] if two else []
        rows = [
            [f"{field.field}: {group.name}", f"{group.sequences:,}", *self._scores(group, two)]
            for field in fields
            for group in field.groups
        ]
        return HtmlTable(header, rows, caption)

    def _scores(self, group: GroupScores, two: bool) -> list[str]:
        if group.accuracy is None:
            return [f"too small (fewer than {self.figures.few})", *(["–", "–"] if two else [])]
        if group.positive is None:
            return [str(group.accuracy)]
        return [str(group.accuracy), f"{group.positive:.1%}", "–" if group.auroc is None else str(group.auroc)]

    # ---- the data -------------------------------------------------------------------------------------------------

    @property
    def classes(self) -> HtmlTable:
        """The classes of each part, in the order of the last one, which the report is about."""
        parts = self.figures.overview.classes
        totals = {part: sum(counts.values()) for part, counts in parts.items()}
        names = list(list(parts.values())[-1])

        def cell(part: str, count: int) -> str:
            return f"{count:,} ({count / totals[part]:.1%})" if totals[part] else "0"

        def row(name: str, of: Sequence[str]) -> list[str]:
            return [name, *(cell(part, sum(counts.get(one, 0) for one in of)) for part, counts in parts.items())]

        rows = [row(name, [name]) for name in names[:CLASSES]]
        if names[CLASSES:]:
            rows.append(row(f"{len(names[CLASSES:])} more classes", names[CLASSES:]))
        rows.append(["all", *(f"{total:,}" for total in totals.values())])
        return HtmlTable([self.figures.label, *parts], rows, "labelled sequences by class")

    @property
    def missing(self) -> HtmlTable | None:
        """The fields with the most missing values."""
        shares = list(self.figures.overview.missing.items())
        rows = [[name, f"{share:.1%}"] for name, share in shares[:MISSING]]
        caption = f"records without a value, {self.figures.overview.records:,} records"
        return HtmlTable(["field", "missing"], rows, caption) if rows else None

    @property
    def missing_words(self) -> str:
        overview = self.figures.overview
        lacking = len(overview.missing)
        if not lacking:
            return "Every record has a value in every field."
        most = f"; the table has the {MISSING} with the most" if lacking > MISSING else ""
        return f"{lacking} of {overview.fields} fields have missing values{most}."

    @property
    def length_words(self) -> str:
        """How many records a sequence has."""
        fewest, median, mean, most = self.figures.overview.lengths
        if fewest == most:
            return f"Every sequence has {fewest:.0f} record{'s' if fewest > 1 else ''}."
        return f"A sequence has {fewest:.0f} to {most:,.0f} records, {mean:.1f} on average; the median is {median:g}."

    @property
    def tie_words(self) -> str:
        tied = self.figures.overview.tied
        if tied is None:
            return ""
        if not tied:
            return "No two records of a sequence have the same time."
        share = decimal(100 * tied / self.figures.overview.records, 1)
        return (
            f"{tied:,} records ({share}%) have the same time as the one before them in their sequence. "
            "Their order is that of the table, and the last record decides the label."
        )
