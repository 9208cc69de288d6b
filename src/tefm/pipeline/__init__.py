"""The whole fit on arrays, stage by stage."""
