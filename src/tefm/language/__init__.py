"""The second and third stage: codes become tokens of a language model, and the model answers from them alone.

backbone → vocabulary (new tokens) → alignment (codes and words) → tuning (the question) → prediction (logits).
Everything here works on arrays; nothing needs a table.
"""
