"""A step that was taken and what came back."""

from __future__ import annotations

from typing import NamedTuple

from service.offline.strategy import Step
from service.offline.transcript import Exchange


class Taken(NamedTuple):
    """A step that was taken and what came back."""

    step: Step
    exchange: Exchange
