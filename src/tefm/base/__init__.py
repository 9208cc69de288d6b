"""The ground floor: errors, files, settings, progress and checkpoints. It knows nothing of records or models."""

__version__ = "0.1.0"
