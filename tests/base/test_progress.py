"""Progress: the share done is that of the whole job, in a log as on a terminal."""

from __future__ import annotations

import io
import logging
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tefm.base import progress as module
from tefm.base.progress import job, note, progress, shown, stage


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every line that is logged; how far the work is, at every step."""

    class Lines(list[str]):
        def emit(self, record: logging.LogRecord) -> bool:
            self.append(record.getMessage())
            return True

    found = Lines()
    handler = logging.Handler()
    handler.emit = found.emit  # type: ignore[method-assign,assignment]
    log = logging.getLogger("tefm")
    monkeypatch.setattr(module, "LOG_EVERY", 0.0)
    before = log.level
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    yield found
    log.removeHandler(handler)
    log.setLevel(before)


def shares(lines: list[str]) -> list[int]:
    return [int(found[1]) for line in lines if (found := re.match(r"(\d+)% done", line))]


def test_stages_count_by_their_share(lines: list[str]) -> None:
    with job({"first": 1.0, "second": 3.0}):
        with stage("first", "stage 1"), progress("one", 2) as advance:
            advance()
            advance()
        with stage("second", "stage 2"), progress("two", 3) as advance:
            for _ in range(3):
                advance()
    assert [line for line in lines if line.startswith("stage")] == ["stage 1", "stage 2"]
    assert sorted(set(shares(lines))) == [0, 12, 25, 50, 75, 100]


def test_a_stage_of_several_loops_is_shared_out_among_them(lines: list[str]) -> None:
    with job({"only": 1.0}), stage("only", "stage 1", loops=2):
        for _ in range(2):
            with progress("round", 2) as advance:
                advance()
                advance()
    assert sorted(set(shares(lines))) == [0, 25, 50, 75, 100]


def test_what_is_left_is_at_least_what_the_running_loop_needs(lines: list[str], monkeypatch: Any) -> None:
    """A stage that takes longer than its share says so at once."""
    now = iter(range(10_000))
    monkeypatch.setattr(module._work, "get_time", lambda: float(next(now)))
    with job({"quick": 0.9, "slow": 0.1}):
        with stage("quick", "stage 1"):
            pass
        with stage("slow", "stage 2"), progress("steps", 1_000) as advance:
            advance()
    assert re.search(r"about (\d+ h )?\d+ min left: steps, 1 of 1,000", lines[-1])


@given(st.lists(st.tuples(st.floats(0.01, 10), st.integers(1, 3), st.lists(st.integers(1, 4), max_size=5)), min_size=1))
def test_the_share_never_falls_and_ends_at_all(stages: list[tuple[float, int, list[int]]]) -> None:
    """Also with more loops than a stage said, or fewer."""
    seen: list[float] = []
    with job({str(number): share for number, (share, _, _) in enumerate(stages)}):
        for number, (_, expected, loops) in enumerate(stages):
            with stage(str(number), "a stage", loops=expected):
                for total in loops:
                    with progress("a loop", total) as advance:
                        for _ in range(total):
                            advance()
                            assert module._work.done is not None
                            seen.append(module._work.done)
        assert module._work.done == pytest.approx(1.0)
    assert seen == sorted(seen)
    assert module._work.whole is None and not module._work.tasks


def test_a_loop_outside_of_a_job_is_a_job_of_its_own(lines: list[str]) -> None:
    with progress("counting", 4) as advance:
        for number in range(4):
            advance(note=f"loss {number}")
    assert shares(lines)[-1] == 100
    assert lines[-1].endswith("counting, 4 of 4, loss 3")


def test_a_loop_of_unknown_length_says_how_many_steps(lines: list[str]) -> None:
    with progress("reading", None) as advance:
        advance(500)
    assert lines[-1] == "reading, 500"


def test_a_failed_job_does_not_stay(lines: list[str]) -> None:
    with pytest.raises(ValueError, match="broken"), job({"a": 1.0}), stage("a", "stage 1"), progress("x", 2):
        raise ValueError("broken")
    assert module._work.whole is None and not module._work.tasks


def test_a_silent_loop_logs_nothing(lines: list[str]) -> None:
    with progress("hidden", 2, show=False) as advance:
        advance(2)
    assert lines == []


@pytest.mark.parametrize("on_stdout", [True, False])
def test_a_redirected_command_logs_plain_lines_with_the_time(
    on_stdout: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with shown(on_stdout=on_stdout):
        note("stage 1 of 4: learning codes [of 3 records]")
        logging.getLogger("tefm").warning("few test sequences")
    captured = capsys.readouterr()
    log, other = (captured.out, captured.err) if on_stdout else (captured.err, captured.out)
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d stage 1 of 4: learning codes \[of 3 records\]\n\d\d:\d\d:\d\d few test sequences\n", log
    )
    assert other == ""
    note("not shown any more")
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(module, "err", Console(file=terminal, force_terminal=True, width=100))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    with shown(), job({"a": 1.0}), stage("a", "stage 1"), progress("training", 2) as advance:
        advance()
        module._work.refresh()
    text = terminal.getvalue()
    assert "stage 1" in text
    assert "50% done" in text
    assert "training, 1 of 2" in text


@pytest.mark.parametrize("around", [lambda: shown(), lambda: job({"a": 1.0})], ids=["command", "job"])
def test_a_generator_that_is_left_inside_of_a_loop_ends_quietly(around: Any) -> None:
    """As when its rows cannot be written: it is closed after the command that read them."""

    def rows() -> Iterator[int]:
        with progress("reading", 2):
            yield from (1, 2)

    with around():
        left = rows()
        next(left)
    left.close()
    assert not module._work.loops
