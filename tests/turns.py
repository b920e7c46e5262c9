"""In what order several processes that share the tests take the files of them: the longest first, so that nobody is left with one at the
end, and those that wait among those that compute, so that the processors have something to do. Knows nothing of what a file tests.

The figures are hints. A file that is not here, because it is new or quick, counts by how many tests it has.
"""

# Seconds that a file takes, and how many of them it computes (on two processors, with three processes).
TAKES = {
}
# A test of a file that is not here.
ONE = 0.2


def in_turns(items):
    """The items, those of a file together, with the files in that order."""
    files = {}
    for item in items:
        files.setdefault(item.path.stem, []).append(item)

    def seconds(name):
        return TAKES.get(name, (ONE * len(files[name]), 0))[0]

    longest_first = sorted(files, key=seconds, reverse=True)
    waits = lambda name: name in TAKES and TAKES[name][1] < TAKES[name][0] / 2  # noqa: E731
    kinds = [[name for name in longest_first if waits(name)], [name for name in longest_first if not waits(name)]]
    totals = [sum(map(seconds, kind)) or 1 for kind in kinds]
    # Of each kind the same share is done at any time.
    begun, order = [0, 0], []
    while any(kinds):
        kind = min((number for number in range(2) if kinds[number]), key=lambda number: begun[number] / totals[number])
        name = kinds[kind].pop(0)
        begun[kind] += seconds(name)
        order += files[name]
    return order
