"""Thresholds from the scores of unanswerable queries, so that they hold for the next query and not only for these. Pure.

Labels are few: of 25 unanswerable queries a half has 12. The least threshold that fits those 12 is too low for the next
ones, because it was drawn to them. Both rules here allow for the number of queries they know.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev

MAX_THRESHOLD = 0.98
_STEPS = 100
_LEAST_SCORE = 0.02


def rejecting(scores: Sequence[float], share: float) -> float:
    """Return a threshold that the next score stays below with probability `share` (split conformal prediction).

    It assumes nothing but that queries come alike. The largest score is all there is when `share` needs more queries.
    """
    rank = math.ceil((len(scores) + 1) * share)
    return _above(sorted(scores)[min(rank, len(scores)) - 1]) if scores else MAX_THRESHOLD


def rarely_reached(scores: Sequence[float], share: float) -> float:
    """Return a threshold for shares that need more queries than there are: 95 in 100 cannot be read off 12.

    It is the upper prediction bound of log-normal scores (they are above 0 and lean to it), never below the largest one.
    """
    if not scores:
        return MAX_THRESHOLD
    largest = max(scores)
    if len(scores) < 2:
        return _above(largest)
    logs = [math.log(max(score, _LEAST_SCORE)) for score in scores]
    spread = stdev(logs) * math.sqrt(1 + 1 / len(logs))
    return _above(max(largest, math.exp(fmean(logs) + student(share, len(logs) - 1) * spread)))


def student(share: float, freedom: int) -> float:
    """Return Student's t quantile by its expansion around the normal one; within 1 % from 5 degrees of freedom on."""
    z = NormalDist().inv_cdf(share)
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _above(score: float) -> float:
    """Return the next hundredth: a score that equals its threshold would reach it."""
    return min(MAX_THRESHOLD, (math.floor(round(score * _STEPS, 6)) + 1) / _STEPS)
