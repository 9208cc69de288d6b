"""Arrays that many modules of this room name."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Which slots are kept.
Keep = NDArray[np.bool_]
#: Positions, or class numbers.
Numbers = NDArray[np.int64]
