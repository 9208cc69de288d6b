"""Loaders of the paper's data in their official layouts, MIMIC-III and CIC-IDS2017, and groups of diagnoses."""
