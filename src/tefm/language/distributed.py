"""Several processes (torchrun, accelerate): the first one works and saves, the others wait and load."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from tefm.base.errors import SettingsError

Made = TypeVar("Made")


def is_first() -> bool:
    """Whether this process is the one that saves and logs."""
    return int(os.environ.get("RANK", "0")) == 0


def first_process_makes(
    make: Callable[[], Made],
    folder: Path | None,
    *,
    is_made: Callable[[Path], bool],
    save: Callable[[Made, Path], None],
    load: Callable[[Path], Made],
    cpu: bool = False,
) -> Made:
    """Load something from `folder`; where it is missing, the first process makes and saves it for all of them."""
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if folder is None:
        if several:
            raise SettingsError(
                "several processes need a checkpoint folder to share what the first one learns",
                remedy="give all of them the same one: fit(table, checkpoint=FOLDER)",
            )
        return make()
    if is_first() and not is_made(folder):
        save(make(), folder)
    if several:
        from accelerate import PartialState

        # the others wait for as long as the first one works
        PartialState(cpu=cpu, timeout=timedelta(days=7)).wait_for_everyone()
    return load(folder)
