"""What a server counts, in Prometheus' format."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024)


class Metrics:
    """Counters of one server, in a registry of their own."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry: CollectorRegistry = CollectorRegistry()
        own = self.registry
        self.requests = Counter("tefm_requests", "Requests by route and status", ["route", "status"], registry=own)
        self.seconds = Histogram(
            "tefm_request_seconds", "Time from request to answer", ["route"], buckets=SECONDS, registry=own
        )
        self.predictions = Counter("tefm_predictions", "Sequences predicted", ["model", "predicted"], registry=own)
        self.explanations = Counter("tefm_explanations", "Sequences explained", ["model", "verdict"], registry=own)
        self.queue = Gauge("tefm_queue", "Requests that wait", ["lane"], registry=own)
        self.refused = Counter("tefm_refused", "Requests refused for lack of room", ["lane"], registry=own)
        self.batches = Counter("tefm_batches", "Batches of the model", ["lane"], registry=own)
        self.batch_rows = Histogram("tefm_batch_rows", "Rows of a batch", ["lane"], buckets=ROWS, registry=own)
        self.busy = Counter("tefm_busy_seconds", "Seconds that the model was at work", ["lane"], registry=own)
        for lane in ("predict", "explain"):
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
