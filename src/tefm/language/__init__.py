"""The second and third stage: codes become words of a language model, and the model answers from them alone.

backbone → vocabulary (new tokens) → align (codes and words) → tune (the question) → predict (probabilities).
Works from arrays: nothing here but `serialise` knows a table.
"""
