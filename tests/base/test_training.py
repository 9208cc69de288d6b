"""What training loops share."""

from __future__ import annotations

import pytest

from tefm.base.training import threads_for


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
