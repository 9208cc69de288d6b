"""The second and third stage: codes become tokens of a language model, and the model answers from them alone.

backbone → vocabulary (new tokens) → align (codes and words) → tune (the question) → predict (probabilities).
Everything here works on arrays; nothing needs a table.
"""
