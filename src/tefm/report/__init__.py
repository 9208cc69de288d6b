"""Reports: what was measured of a model, or by a benchmark, as one HTML file that stands alone."""

from tefm.report.bench import bench_page

__all__ = ["bench_page"]
