"""The benchmarks: every table of the paper and some of our own, made by `tefm bench`."""
