"""What training loops share."""

from __future__ import annotations

import resource
import threading
from functools import partial
from pathlib import Path

import pytest
import torch
from conftest import Explained

from tefm.base.errors import InputError
from tefm.base.training import load_checkpoint, save_checkpoint, side_by_side, threads_for


def test_a_full_disk_is_one_line(tmp_path: Path, explained: Explained) -> None:
    """A limit on the size of files stands for the disk; what torch says of it names no file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    save_checkpoint(tmp_path / "old", "a", {"weights": torch.zeros(3)})
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        for name in ("new", "old"):
            weights = {"weights": torch.zeros(100_000)}
            explained(InputError, lambda: save_checkpoint(tmp_path / name, "a", weights), "cannot write", name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert len(load_checkpoint(tmp_path / "old", "a")["weights"]) == 3


@pytest.mark.parametrize(("rows", "threads"), [(1_000, 1), (25_000, 2), (1_000_000, 4)])
def test_trees_get_the_threads_that_their_rows_keep_busy(rows: int, threads: int) -> None:
    from sklearn import ensemble  # threads are limited where libraries are loaded
    from threadpoolctl import threadpool_info, threadpool_limits

    def openmp() -> set[int]:
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "openmp"}

    assert ensemble
    with threadpool_limits(4, user_api="openmp"):
        with threads_for(rows):
            assert openmp() == {threads}
        assert openmp() == {4}


@pytest.mark.parametrize("memory", [1, 1 << 40])
def test_calls_side_by_side_share_the_threads_and_give_results_in_order(memory: int) -> None:
    """Two calls meet where there is memory for both; where there is not, they come one after the other."""
    from threadpoolctl import ThreadpoolController

    meeting = threading.Barrier(2)

    def call(number: int) -> tuple[int, int]:
        if memory == 1:
            meeting.wait(timeout=60)
        openmp = ThreadpoolController().select(user_api="openmp")
        return number, max(library["num_threads"] for library in openmp.info())

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        results = list(side_by_side([partial(call, number) for number in range(4)], memory))
    finally:
        torch.set_num_threads(before)
    assert [number for number, _ in results] == [0, 1, 2, 3]
    if memory == 1:
        assert {threads for _, threads in results} == {1}


def test_what_fails_side_by_side_is_raised() -> None:
    def fail() -> None:
        raise InputError("a fold is empty")

    with pytest.raises(InputError, match="a fold is empty"):
        list(side_by_side([fail, fail], 1))
