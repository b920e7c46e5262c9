"""Runs of a bench in which several targets take turns: the loop, and the tables of medians of the rounds' ratios.

A run is a dict with `round`, `workload`, `target` and its figures. Refuses to know what is measured.
"""

import stats


def take_turns(names, rounds, measure):
    """Calls `measure(round, name)` for each, in an order that moves on by one with each round."""
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            measure(number, name)


def by_round(runs, workload, target, field):
    """Round to value."""
    found = [run for run in runs if (run["workload"], run["target"]) == (workload, target) and field in run]
    return {run["round"]: run[field] for run in found}


def goals(runs, rows):
    """Lines of a table: of each row (text, workload, field, of whom, beside whom or None, limit or None, whether that is the least)."""
    lines = ["| | workload | median of the rounds' ratios | interval | goal |", "|-|-|-|-|-|"]
    for text, workload, field, ours, theirs, limit, least in rows:
        mine = by_round(runs, workload, ours, field)
        values = stats.paired_ratios(mine, by_round(runs, workload, theirs, field)) if theirs else list(mine.values())
        middle, edges = stats.median(values), stats.interval(values)
        if middle is None:
            continue
        met = "" if limit is None else ("met" if (middle >= limit if least else middle <= limit) else "missed")
        bound = "" if limit is None else f"{'at least' if least else 'at most'} {limit:g}: {met}"
        shown = f"[{edges[0]:.3f}, {edges[1]:.3f}]" if edges else ""
        lines.append(f"| {text} | {workload} | {middle:.3f} | {shown} | {bound} |" if theirs else f"| {text} | {workload} | {middle:.0f} | | {bound} |")
    return lines


def medians(runs, workload, target, fields):
    """The median of each field; None where there is none."""
    return [stats.median(list(by_round(runs, workload, target, field).values())) for field in fields]
