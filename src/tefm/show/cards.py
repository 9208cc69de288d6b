"""Rationales in the browser: cards of a report, or a page of their own. Everything is said in text; bars repeat it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tefm.rationale.card import Answer, Rationale
from tefm.rationale.render import readings, seal
from tefm.show.html import Page, render


@dataclass(frozen=True)
class Card:
    """A rationale with what its card shows."""

    rationale: Rationale
    #: its id on the page
    anchor: str

    @property
    def answers(self) -> list[tuple[str, Answer]]:
        """What the model was shown, and what it predicted."""
        return readings(self.rationale)

    @property
    def verdict(self) -> str:
        return seal(self.rationale)


def rationale_page(rationales: Sequence[Rationale], title: str = "Rationales") -> Page:
    """One page with a card per rationale."""
    cards = [Card(rationale, f"r{number}") for number, rationale in enumerate(rationales, start=1)]
    return Page(render("rationales.html", title=title, cards=cards))
