"""Encode, predict and explain a folder of Parquet files on a Ray cluster."""
