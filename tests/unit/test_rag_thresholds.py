"""Thresholds from few scores: what they promise for the next one (R54)."""

from __future__ import annotations

import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.rag.thresholds import MAX_THRESHOLD, rarely_reached, rejecting, student

scores = st.lists(st.floats(0, 1), min_size=1, max_size=60)


@given(scores, st.sampled_from((0.5, 0.8, 0.95)))
def test_r54_the_known_scores_are_rejected_at_least_so_often(known: list[float], share: float) -> None:
    threshold = rejecting(known, share)
    below = sum(score < threshold for score in known)
    assert threshold == MAX_THRESHOLD or below >= share * len(known)


@given(scores)
def test_r54_no_known_score_reaches_high(known: list[float]) -> None:
    threshold = rarely_reached(known, 0.95)
    assert threshold == MAX_THRESHOLD or max(known) < threshold
    assert threshold >= rejecting(known, 0.8)


@pytest.mark.parametrize("count", [8, 12, 25])
def test_r54_both_hold_for_the_next_score_on_average(count: int) -> None:
    """The least threshold that fits the known scores does not: it rejects fewer of the next ones than it was asked to."""
    dice = random.Random(count)

    def drawn(number: int) -> list[float]:
        return [min(1.0, dice.lognormvariate(-1.6, 0.35)) for _ in range(number)]

    rejected, false_high, greedy = [], [], []
    for _ in range(200):
        known, unseen = drawn(count), drawn(50)
        rejected.append(fmean(score < rejecting(known, 0.8) for score in unseen))
        false_high.append(fmean(score >= rarely_reached(known, 0.95) for score in unseen))
        greedy.append(fmean(score <= sorted(known)[-(-count * 4 // 5) - 1] for score in unseen))
    assert fmean(rejected) >= 0.80
    assert fmean(false_high) <= 0.05
    assert fmean(greedy) < 0.80


def test_without_scores_nothing_is_promised() -> None:
    assert rejecting([], 0.8) == rarely_reached([], 0.95) == MAX_THRESHOLD
    assert rarely_reached([0.3], 0.95) == 0.31


@pytest.mark.parametrize(("share", "freedom", "quantile"), [(0.95, 11, 1.796), (0.95, 24, 1.711), (0.975, 5, 2.571)])
def test_quantiles_agree_with_the_printed_tables(share: float, freedom: int, quantile: float) -> None:
    assert student(share, freedom) == pytest.approx(quantile, rel=0.01)
