"""The possible results of explaining an answer. It imports nothing, so a stored explanation is shown without torch."""

from __future__ import annotations

from typing import Literal

#: Explained in `reasons`.
Outcome = Literal["settled", "contested", "unsettled", "default"]

#: Of masked sufficiency, explained at `Verification`.
Verdict = Literal["sufficient", "default", "insufficient"]

#: The evidence is how much all features raise the probability of the answer. Less than this counts as none.
MARGIN = 0.05
#: The share of the evidence that sufficient features account for.
HALF = 0.5
