"""How good predictions are: metrics with intervals, calibration. Arrays only."""
