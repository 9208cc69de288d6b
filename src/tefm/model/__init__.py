"""`TEFM` and what surrounds it: task files, bundles, reports."""
