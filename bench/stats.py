"""Medians, percentiles, and bootstrap intervals of paired ratios.

Refuses to know what the numbers mean.
"""

import random
import statistics

RESAMPLES = 10_000
SEED = 20261121


def median(values):
    """The median, or None of nothing."""
    return statistics.median(values) if values else None


def percentile(ordered, share):
    """The sample at its rank in an ordered list, or None of nothing."""
    if not ordered:
        return None
    rank = max(1, -(-len(ordered) * share // 1))
    return ordered[int(rank) - 1]


def paired_ratios(ours, theirs):
    """Ratios of equal rounds; both arguments map a round to a value. Rounds that one side lacks are left out."""
    rounds = sorted(set(ours) & set(theirs))
    return [ours[r] / theirs[r] for r in rounds if ours[r] is not None and theirs[r]]


def interval(values, share=0.95):
    """Bootstrap percentile interval of the median; None below three values."""
    if len(values) < 3:
        return None
    chance = random.Random(SEED)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
    edge = int(RESAMPLES * (1 - share) / 2)
    return [medians[edge], medians[-edge - 1]]


def summary(values):
    """Median, interval and number of values."""
    return {"median": median(values), "interval": interval(values), "n": len(values)}
