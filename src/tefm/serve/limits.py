"""The limits of a server, and what it counts, in Prometheus' format."""

from __future__ import annotations

from pydantic import Field

from tefm.base.settings import Settings

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024)


#: Connections at once, and the bytes and seconds that the headers of a request may take.
CONNECTIONS, HEADER_BYTES, HEADER_SECONDS = 1_000, 64 << 10, 10.0


class ServeSettings(Settings):
    """What a server accepts, and how long it takes for it."""

    max_rows: int = Field(default=1_000, ge=1, description="maximum number of rows per request")
    max_explanations: int = Field(default=10, ge=1, description="maximum number of sequences explained per request")
    max_megabytes: float = Field(default=4.0, gt=0, description="maximum size of a request, in MiB")
    queue: int = Field(default=256, ge=1, description="queue size; further requests get HTTP 429")
    timeout: float = Field(default=30.0, gt=0, description="timeout of a prediction in seconds")
    explain_timeout: float = Field(default=120.0, gt=0, description="timeout of an explanation in seconds")
    batch_ms: float = Field(default=3.0, ge=0, description="milliseconds to wait for further requests to share a batch")
    #: in which proxies learn from `/readyz` that this server is going
    drain: float = Field(default=1.0, ge=0, description="seconds from SIGTERM until the server stops listening")

    @property
    def max_bytes(self) -> int:
        return max(1_024, int(self.max_megabytes * (1 << 20)))


class Metrics:
    """Counters of one server, in a registry of their own."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = own = CollectorRegistry()
        self.requests = Counter("tefm_requests", "Requests by route and status", ["route", "status"], registry=own)
        self.seconds = Histogram(
            "tefm_request_seconds", "Time from request to answer", ["route"], buckets=SECONDS, registry=own
        )
        self.predictions = Counter("tefm_predictions", "Sequences predicted", ["model", "predicted"], registry=own)
        self.explanations = Counter("tefm_explanations", "Sequences explained", ["model", "verdict"], registry=own)
        self.queue = Gauge("tefm_queue", "Requests waiting in the queue", ["lane"], registry=own)
        self.refused = Counter("tefm_refused", "Requests rejected because the queue was full", ["lane"], registry=own)
        self.batches = Counter("tefm_batches", "Batches run by the model", ["lane"], registry=own)
        self.batch_rows = Histogram("tefm_batch_rows", "Rows per batch", ["lane"], buckets=ROWS, registry=own)
        self.busy = Counter("tefm_busy_seconds", "Seconds the model spent computing", ["lane"], registry=own)
        for lane in ("predict", "ask", "explain"):
            self.queue.labels(lane).set(0)
            self.refused.labels(lane)

    def waiting(self, lane: str, count: int) -> None:
        self.queue.labels(lane).set(count)

    def batch(self, lane: str, rows: int, seconds: float) -> None:
        self.batches.labels(lane).inc()
        self.batch_rows.labels(lane).observe(rows)
        self.busy.labels(lane).inc(max(0.0, seconds))

    def text(self) -> bytes:
        """All of it, for a scraper."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)
