"""Turns the runs of a result file into ratios, verdicts on the goals, and Markdown tables.

Refuses to know how the runs were made.
"""

import plan
import stats


TREES = ("pooler", "database", "pgbench")


def value(run, field):
    """One number of a run; None if it is not known."""
    if field == "largest_share":
        shares = run.get("worker_shares")
        return max(shares.values()) if shares and len(shares) > 1 else None
    return run.get(field)


def by_round(runs, workload, target, field):
    """Round to value of one field, of the rounds that have it."""
    found = {}
    for run in runs:
        if (run["workload"], run["target"]) == (workload, target) and value(run, field) is not None:
            found[run["round"]] = value(run, field)
    return found


def judge(runs):
    """Every goal with its median, interval and verdict; goals without data have the verdict None."""
    verdicts = []
    for goal in plan.goals():
        ours = by_round(runs, goal.workload, goal.ours, goal.field)
        if goal.theirs:
            values = stats.paired_ratios(ours, by_round(runs, goal.workload, goal.theirs, goal.field))
        else:
            values = list(ours.values())
        result = stats.summary(values)
        entry = {"goal": goal.text, "workload": goal.workload, "limit": goal.limit, "at_least": goal.at_least}
        verdicts.append(entry | result | verdict(goal, result))
    return verdicts


def verdict(goal, result):
    """Whether the median keeps the limit, and whether the whole interval is on the same side of it."""
    if result["median"] is None:
        return {"met": None, "certain": None}
    keeps = (lambda x: x >= goal.limit) if goal.at_least else (lambda x: x <= goal.limit)
    met = keeps(result["median"])
    certain = result["interval"] is not None and all(keeps(edge) == met for edge in result["interval"])
    return {"met": met, "certain": certain}


def medians(runs):
    """Workload and target to the medians of their fields."""
    fields = tuple(f"{tree}_{what}" for tree in TREES for what in ("user_us", "kernel_us", "switches"))
    fields += ("throughput", "cpu_us", "machine_cpu_us", "p50_ms", "p99_ms", "p99_over_p50")
    fields += ("bytes_per_client", "marginal_bytes_per_client")
    table = {}
    for run in runs:
        key = (run["workload"], run["target"])
        if key not in table:
            table[key] = {f: stats.median(list(by_round(runs, *key, f).values())) for f in fields}
            table[key]["failed"] = sum(r["failed"] for r in runs if (r["workload"], r["target"]) == key)
    return table


def markdown(result):
    """The whole report."""
    runs = result["runs"]
    parts = [_head(result), _goals(judge(runs)), _absolute(medians(runs)), _spent(medians(runs)), _shares(runs)]
    parts += [_memory(medians(runs)), _incidents(runs)]
    return "\n".join(part for part in parts if part)


def _head(result):
    machine, settings = result["machine"], result["settings"]
    versions = "; ".join(f"{name}: {version}" for name, version in result["versions"].items())
    missing = f"\nMissing, so left out: {', '.join(result['missing'])}." if result["missing"] else ""
    return (
        f"{result['date']}, `{result['command']}`: {settings['rounds']} rounds, interleaved, each run "
        f"{settings['seconds']} s after {settings['warmup']} s of warm-up; pool of 20, pgbench scale "
        f"{settings['scale']}.\n{machine['cpus']} x {machine['cpu']}, {machine['memory_gb']} GB, Linux "
        f"{machine['kernel']}; pooler, database and pgbench share it. Reactor: {result['reactor'] or 'unknown'}. "
        f"{versions}.{missing}\n"
    )


def _goals(verdicts):
    lines = ["| workload | what | median [95% interval] | goal | met |", "|-|-|-|-|-|"]
    uncertain = False
    for entry in verdicts:
        if entry["median"] is None:
            continue
        sign = "at least" if entry["at_least"] else "at most"
        met = "yes" if entry["met"] else "**no**"
        if not entry["certain"]:
            met, uncertain = met + " (?)", True
        cells = (entry["workload"], entry["goal"], _with_interval(entry), f"{sign} {entry['limit']:g}", met)
        lines.append("| " + " | ".join(cells) + " |")
    if len(lines) == 2:
        return ""
    note = "\n(?): the interval reaches beyond the goal, or there are too few rounds for one.\n" if uncertain else "\n"
    return "\n".join(lines) + note


def _absolute(table):
    lines = [
        "| workload | target | transactions/s | pooler CPU us | machine CPU us | p50 ms | p99 ms | p99/p50 | failed |",
        "|-|-|-|-|-|-|-|-|-|",
    ]
    for (workload, target), row in table.items():
        if row["throughput"] is None and row["bytes_per_client"] is not None:
            continue
        cells = [workload, target, _number(row["throughput"], 0), _number(row["cpu_us"], 1)]
        cells += [_number(row["machine_cpu_us"], 1), _number(row["p50_ms"], 2), _number(row["p99_ms"], 2)]
        cells += [_number(row["p99_over_p50"], 2), str(row["failed"])]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


def _spent(table):
    lines = [
        "| workload | target | pooler us: user + kernel | database us | pgbench us | context switches of pooler, database |",
        "|-|-|-|-|-|-|",
    ]
    for (workload, target), row in table.items():
        if row["database_user_us"] is None:
            continue
        cells = [f"{row[f'{tree}_user_us']:.1f} + {row[f'{tree}_kernel_us']:.1f}" for tree in TREES]
        cells.append(f"{row['pooler_switches']:.2f}, {row['database_switches']:.2f}")
        lines.append("| " + " | ".join([workload, target, *cells]) + " |")
    return "For each transaction:\n\n" + "\n".join(lines) + "\n" if len(lines) > 2 else ""


def _shares(runs):
    shares = {}
    for run in runs:
        if run["target"] == plan.US_TWO and run.get("worker_shares"):
            for name, share in run["worker_shares"].items():
                shares.setdefault(run["workload"], {}).setdefault(name, []).append(share)
    if not shares:
        return ""
    lines = ["| two workers | worker | median share of their CPU | least | most |", "|-|-|-|-|-|"]
    for workload, names in shares.items():
        for name, values in names.items():
            shown = (f"{share:.1%}" for share in (stats.median(values), min(values), max(values)))
            lines.append(f"| {workload} | {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def _incidents(runs):
    """Runs that failed in part or altogether, so that nobody takes the rest for everything."""
    lines = [
        f"- round {run['round'] + 1}, {run['workload']}, {run['target']}: {(run['complaint'] or 'unknown')[:200]}"
        for run in runs
        if run["failed"] or run.get("complaint")
    ]
    return "Runs with failures:\n\n" + "\n".join(lines) + "\n" if lines else ""


def _memory(table):
    lines = [
        f"- {target}: {row['bytes_per_client']:.0f} bytes per idle client "
        f"({_number(row['marginal_bytes_per_client'], 0)} in the second half of the crowd)"
        for (_, target), row in table.items()
        if row["bytes_per_client"] is not None
    ]
    return "Resident memory, clients idle after one query each:\n\n" + "\n".join(lines) + "\n" if lines else ""


def _with_interval(entry):
    digits = 0 if entry["median"] >= 100 else 3
    text = f"{entry['median']:.{digits}f}"
    if entry["interval"]:
        low, high = entry["interval"]
        text += f" [{low:.{digits}f}, {high:.{digits}f}]"
    return text


def _number(number, digits):
    return "-" if number is None else f"{number:.{digits}f}"
