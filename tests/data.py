"""Where the real material for tests lies; tests are skipped with the reason shown where it is absent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def data_dir() -> Path:
    """Return the folder of real test material or skip the calling test."""
    return _folder("SUPERBIZ_DATA", "data")


def spec_dir() -> Path:
    """Return the folder of the written contract or skip the calling test."""
    return _folder("SUPERBIZ_SPEC", "spec")


def _folder(variable: str, name: str) -> Path:
    path = Path(os.environ.get(variable, ROOT.parent / "shared" / name))
    if not path.is_dir():
        pytest.skip(f"real material not found: set {variable} to its folder")
    return path
