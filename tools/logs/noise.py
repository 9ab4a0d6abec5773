"""Colour codes of terminals, as they stand in log files. Pure."""

from __future__ import annotations

import re

_CODES = r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,400}(?:\x07|\x1b\\)|[@-Z\\-_])"
ANSI = re.compile(_CODES.encode())
ANSI_TEXT = re.compile(_CODES)
