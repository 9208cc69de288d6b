"""Reading ahead: the next item is made while this one is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def ahead(items: Iterable[Item]) -> Iterator[Item]:
    """The same items in the same order; each is made in a second thread while the one before is in use.

    >>> list(ahead(range(3)))
    [0, 1, 2]
    """
    iterator, end = iter(items), object()
    with ThreadPoolExecutor(max_workers=1) as worker:
        upcoming = worker.submit(next, iterator, end)
        while (item := upcoming.result()) is not end:
            upcoming = worker.submit(next, iterator, end)
            yield item  # type: ignore[misc]  # not the end
