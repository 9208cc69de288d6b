"""Several processes (torchrun, accelerate): the first makes, the others wait and read."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tefm.base.errors import SettingsError

if TYPE_CHECKING:
    from tefm.codes.tokenizer import RecordTokenizer


def is_first() -> bool:
    """Whether this process is the one that writes and speaks."""
    return int(os.environ.get("RANK", "0")) == 0


def first_process_makes(
    make: Callable[[], RecordTokenizer], folder: Path | None, *, device: str | None
) -> RecordTokenizer:
    """A tokenizer out of `folder`; if it is not there, it is made once and left for the others and a resumed run."""
    from tefm.codes.tokenizer import RecordTokenizer

    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if folder is None:
        if several:
            raise SettingsError(
                "several processes need a checkpoint folder to share what the first has learned",
                remedy="give all of them the same one: fit(table, checkpoint=FOLDER)",
            )
        return make()
    if is_first() and not RecordTokenizer.is_saved(folder):
        make().save(folder)
    if several:
        from accelerate import PartialState

        # the others wait for as long as the first one learns
        PartialState(cpu=device == "cpu", timeout=timedelta(days=7)).wait_for_everyone()
    return RecordTokenizer.load(folder, device=device)
