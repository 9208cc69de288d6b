"""Stage 4: which input features a prediction rests on, and the proof.

judge → surrogate → extractor → selection → verify → render; `alternatives` ranks features as others do.
"""
