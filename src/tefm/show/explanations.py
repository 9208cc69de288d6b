"""What a report shows of explanations: rules, fields, examples."""

from __future__ import annotations

from dataclasses import dataclass

from tefm.rationale.explanation import Explanation
from tefm.rationale.summary import FIELD_COLUMNS, FIELDS, RULE_COLUMNS, RULES
from tefm.show.figures import Case, Explained
from tefm.show.html import HtmlTable


@dataclass(frozen=True)
class CaseView:
    """An explained prediction with the class that was recorded."""

    case: Case
    #: its id on the page
    anchor: str

    @property
    def explanation(self) -> Explanation:
        return self.case.explanation

    @property
    def recorded(self) -> str:
        return self.explanation.named(self.case.label)

    @property
    def correct(self) -> bool:
        return self.case.label == self.explanation.answer.says


@dataclass(frozen=True)
class ExplanationsView:
    """What the templates show of the explanations."""

    explained: Explained

    @property
    def sentence(self) -> str:
        return self.explained.summary.sentence

    @property
    def tables(self) -> list[HtmlTable]:
        """The rules, and the fields that move probabilities most."""
        summary = self.explained.summary
        parts = ((RULES, RULE_COLUMNS, summary.rules), (FIELDS, FIELD_COLUMNS, summary.fields))
        return [
            HtmlTable(columns, [one.cells for one in listed], title, words=2)
            for title, columns, listed in parts
            if listed
        ]

    @property
    def wrong_words(self) -> str:
        """Which wrong predictions are among the examples."""
        count = self.explained.wrong
        if count < 2:
            return ", and the only wrong one" if count else "; no prediction on this page's sequences is wrong"
        return f", and one of the {count:,} wrong ones"

    @property
    def cases(self) -> list[CaseView]:
        cases = enumerate(self.explained.cases, start=1)
        return [CaseView(case, f"case{number}") for number, case in cases]
