"""What the check of a rationale can find. It stands alone: a stored rationale is shown without torch."""

from __future__ import annotations

from typing import Literal

#: Explained at `Verification`.
Verdict = Literal["sufficient", "default", "insufficient"]
