"""The fields of a sequence over time on its card: what the rule cites is marked, and the line ends at the answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from conftest import stays
from support.cards import SCRIPT
from support.explanations import explanation

from tefm.explain.explanation import Explanation
from tefm.explain.over_time import LANES, RECORDS
from tefm.explain.render import cards_page
from tefm.explain.trajectory import WIDTH, Lane, Trajectory, place_of_record
from tefm.model.estimator import TEFM
from tefm.tables.sequences import Sequences

AGE = Lane("Age", "number", (61.0, None, 75.0), ("60–62", "not recorded", "75"), (2,), (40.0, 80.0))
WARD = Lane("Ward", "category", (1.0, 1.0, 1.0), ("heart", "heart", "lung"))


@pytest.fixture(scope="module")
def explained_stays(fitted: TEFM) -> Sequence[Explanation]:
    test = stays(60, seed=3)
    several = test.group_by("patient").len().filter(pl.col("len") > 1)["patient"].sort()[:12].to_list()
    return fitted.explain(test, entities=[*several, "p0"])


def test_the_line_is_what_prediction_after_each_record_gives(
    fitted: TEFM, explained_stays: Sequence[Explanation]
) -> None:
    after = fitted.predict_table(stays(60, seed=3), each_record=True)
    for card in explained_stays:
        says, own = card.answer.says, after.filter(pl.col("patient") == card.sequence)
        if card.records == 1:
            assert card.trajectory is None and card.turn == ""
            continue
        assert card.trajectory is not None
        numbers, p = zip(*card.trajectory.p, strict=True)
        assert numbers == tuple(range(1, card.records + 1)) and p[-1] == pytest.approx(card.answer.p)
        np.testing.assert_allclose(p, own[f"p({says})"], atol=1e-5)
        earlier = [row["records"] for row in own.to_dicts() if str(row["predicted"]) != says]
        assert card.trajectory.since == max(earlier, default=0) + 1


def test_what_the_rule_cites_is_marked(explained_stays: Sequence[Explanation]) -> None:
    marked = 0
    for card in explained_stays:
        if card.trajectory is None:
            continue
        cited = {finding.field for finding in card.settling.findings} if card.relevant else set()
        lanes = [lane for lane in card.trajectory.lanes if lane.cited]
        assert {lane.title.partition(":")[0].lower() for lane in lanes} <= cited
        assert bool(lanes) == bool(cited)
        for finding in card.settling.findings:
            if card.relevant and finding.when is None and finding.words == "drugs: morphine":
                (lane,) = [lane for lane in lanes if lane.title == finding.words]
                assert finding.record - 1 in lane.cited and lane.words[finding.record - 1] == "yes"
                marked += 1
    assert marked, "morphine decides"


def test_the_band_is_that_of_the_training_population(fitted: TEFM, explained_stays: Sequence[Explanation]) -> None:
    ages = stays(200)["age"].drop_nulls().to_numpy()
    bands = {lane.band for card in explained_stays if card.trajectory for lane in card.trajectory.lanes}
    (band,) = [band for band in bands if band is not None and band[1] > 20]
    np.testing.assert_allclose(band, np.quantile(ages, [0.1, 0.9]), atol=4)


def test_the_page_draws_it() -> None:
    course = Trajectory(1, 3, (AGE, WARD), 2, ((1, 0.2), (2, 0.4), (3, 0.91)), 3)
    page = cards_page([explanation(trajectory=course)])
    assert "The model has answered “yes” since stay 3 of 3." in page and "2 more fields not drawn" in page
    (marks,) = re.findall(r'<g class="cited">(.*?)</g>', page.replace("\n", ""))[:1]
    assert marks.count("<circle") == 1 and "<title>75</title>" in marks
    last = place_of_record(2, 3)
    assert f'cx="{last:.1f}"' in marks and last < WIDTH
    assert "<title>after 3: 0.91</title>" in page and "<title>40 to 80</title>" in page
    assert page.count('class="tick"') == 3
    assert page.count('height="14"') == 2, "the first value of the ward and its change are tall"


def test_a_number_outside_the_band_lies_outside_it_in_the_picture() -> None:
    low, high = (AGE.y(value) for value in (40.0, 80.0))
    assert high < AGE.y(75.0) < AGE.y(61.0) < low
    old = replace(AGE, values=(95.0, None, 75.0))
    assert old.y(95.0) < old.y(80.0) and old.y(None) > old.y(40.0)


def test_values_of_a_table_do_no_harm_and_json_comes_back() -> None:
    hostile = replace(WARD, title=SCRIPT, words=(SCRIPT,) * 3, cited=(0,))
    card = explanation(trajectory=Trajectory(1, 3, (hostile,), 0))
    assert SCRIPT not in cards_page([card])
    assert Explanation.from_json(card.to_json()) == card
    old = card.to_json()
    del old["trajectory"]
    assert Explanation.from_json(old).trajectory is None, "one that was stored before"


def test_long_histories_are_drawn_from_their_last_records(fitted: TEFM) -> None:
    one = stays(1, seed=4)
    long = pl.concat([one] * 100)[:100].with_columns(
        day=pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 4, 9), eager=True)[:100].cast(pl.String),
        age=pl.Series(np.arange(100) % 50 + 20),
    )
    (card,) = fitted.explain(long, most=1)
    assert card.trajectory is not None and len(card.trajectory.lanes) <= LANES
    assert (card.trajectory.first, card.trajectory.count) == (100 - RECORDS + 1, RECORDS)
    assert card.trajectory.p[-1] == (100, pytest.approx(card.answer.p)) and len(card.trajectory.p) == 20
    assert "41–100 of 100" in cards_page([card])


def test_prefixes_keep_the_texts_of_their_records() -> None:
    notes = (("a",), ("b",), ("c",))
    sequence = Sequences(np.arange(3)[:, None], np.array([0, 3]), texts=[notes])
    grown = sequence.up_to(np.array([0, 2]))
    assert grown.lengths.tolist() == [1, 3] and grown.texts == [notes[:1], notes]
