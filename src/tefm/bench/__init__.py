"""The evidence: every table of the paper and our own, each one command (`tefm bench`)."""
