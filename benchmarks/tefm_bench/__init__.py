"""The benchmarks: every table of the paper and some of our own, made by `python -m tefm_bench`."""
