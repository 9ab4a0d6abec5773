"""Where the real material for tests lies; tests are skipped with the reason shown where it is absent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def data_dir() -> Path:
    """Return the folder of real test material or skip the calling test."""
    path = Path(os.environ.get("SUPERBIZ_DATA", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"real material not found at SUPERBIZ_DATA ({path.name})")
    return path


def spec_dir() -> Path:
    """Return the folder of the specification or skip the calling test."""
    path = Path(os.environ.get("SUPERBIZ_SPEC", ROOT.parent / "shared" / "spec"))
    if not path.is_dir():
        pytest.skip(f"specification not found at SUPERBIZ_SPEC ({path.name})")
    return path
