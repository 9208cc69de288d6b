"""The paper's masks (`tefm rationale`): a few slots with which alone the model gives the same answer.

masking → extractor (by greedy search or mask_loss) → select → grow → verify → card

The model's answers to masked records and the surrogate are shared with the explanations by look-alikes, one room up.
"""
