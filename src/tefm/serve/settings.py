"""The limits of a server."""

from __future__ import annotations

from pydantic import Field

from tefm.base.settings import Settings


class ServeSettings(Settings):
    """What a server accepts, and how long it takes for it."""

    #: rows of one request, and sequences that one request may have explained
    max_rows: int = Field(default=1_000, ge=1)
    max_explanations: int = Field(default=10, ge=1)
    #: answers to questions in words of one request: its sequences times its questions
    max_answers: int = Field(default=2_000, ge=1)
    #: bytes of one request
    max_bytes: int = Field(default=4 << 20, ge=1_024)
    #: requests that wait; a further one is answered with 429, and so is an explanation that would not end in time
    queue: int = Field(default=256, ge=1)
    #: seconds from a request to its answer: for predictions, and for explanations
    timeout: float = Field(default=30.0, gt=0)
    explain_timeout: float = Field(default=120.0, gt=0)
    #: how long the first prediction of a batch waits for others
    batch_milliseconds: float = Field(default=3.0, ge=0)
    #: rows of a batch; a larger request is a batch of its own
    batch_rows: int = Field(default=256, ge=1)
    #: seconds between SIGTERM and the end of listening, in which proxies learn that this server is going
    drain: float = Field(default=1.0, ge=0)

    @property
    def waiting_rows(self) -> int:
        """Rows that wait, at most."""
        return max(self.queue, 10 * self.max_rows)
