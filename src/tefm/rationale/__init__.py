"""Stage 4: which input features a prediction depends on, checked with the model itself.

masked_model → surrogate → extractor → select → grow → verify → card → render
"""
