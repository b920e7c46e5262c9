"""Makes a history that fails shorter: fewer turns, then fewer requests in them. Knows nothing of what the turns do."""

import dataclasses

# Most trials; each starts a pooler.
MAX_TRIALS = 150


def shrink(turns, failure, trial):
    """`trial(turns)` returns how they fail, or None. Returns the shortest history found, and its failure."""
    left = [MAX_TRIALS]

    def fails(some):
        if left[0] <= 0:
            return None
        left[0] -= 1
        return trial(some)

    # It is likely to be in the last ones.
    count = 2
    while count < len(turns):
        if found := fails(turns[-count:]):
            turns, failure = turns[-count:], found
            break
        count *= 2
    turns, failure = without(turns, failure, fails)
    for at in range(len(turns)):
        requests, failure = without(list(turns[at].requests), failure,
                                    lambda some, at=at: fails([*turns[:at], dataclasses.replace(turns[at], requests=tuple(some)), *turns[at + 1:]]) if some else None)
        turns[at] = dataclasses.replace(turns[at], requests=tuple(requests))
    return turns, failure


def without(parts, failure, fails):
    """Leaves out as many parts as possible, large pieces first."""
    size = max(1, len(parts) // 2)
    while True:
        at = 0
        while at < len(parts):
            fewer = parts[:at] + parts[at + size:]
            if len(fewer) < len(parts) and fewer and (found := fails(fewer)):
                parts, failure = fewer, found
            else:
                at += size
        if size == 1:
            return parts, failure
        size //= 2
