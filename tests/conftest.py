"""What the tests share: a hypothesis profile without deadlines, and a way to look at errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings

from tefm.errors import TefmError

settings.register_profile("tefm", deadline=None)  # the first call of a library is slow, whatever it does
settings.load_profile("tefm")

Explained = Callable[..., TefmError]


@pytest.fixture
def explained() -> Explained:
    """Check that a call ends in an error of the given kind that has a remedy and whose message has all the parts."""

    def check(kind: type[TefmError], call: Callable[[], Any], *parts: object) -> TefmError:
        with pytest.raises(kind) as caught:
            call()
        message = str(caught.value)
        for part in parts:
            assert str(part) in message, message
        assert caught.value.remedy, message
        return caught.value

    return check
