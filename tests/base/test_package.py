"""What is published: a source distribution and a wheel that PyPI would take."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_package_would_pass_on_pypi(tmp_path: Path) -> None:
    for tool in ("build", "hatchling", "twine"):
        pytest.importorskip(tool, reason=f"the package is checked with {tool}, which is not installed")
    built = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(built, check=True, capture_output=True, timeout=300)
    files = sorted(map(str, tmp_path.iterdir()))
    assert [Path(file).suffix for file in files] == [".whl", ".gz"]
    checked = [sys.executable, "-m", "twine", "check", "--strict", *files]
    assert subprocess.run(checked, capture_output=True, timeout=300).returncode == 0
