"""The same work on a cluster: encode, predict and explain a folder of Parquet files with Ray."""
