"""The report of mongodb_cases.py: the published rows beside ours, and in words where ours differ. Measures nothing."""

# Case 5: requests/s to (p50, p95, p99 in ms, errors in %), for pools of 100 and of 200.
EXHAUSTION = {
    100: {"100": (8, 15, 42, 0), "300": (9, 18, 55, 0), "500": (12, 45, 280, 0.1), "800": (15, 320, 2800, 4.2), "1000": (18, 1200, 5000, 12.8)},
    200: {"100": (8, 14, 38, 0), "300": (8, 16, 45, 0), "500": (9, 18, 52, 0), "800": (11, 25, 85, 0), "1000": (14, 42, 180, 0.02)},
}
# Case 4: clients, requests/s, mean, p99 and max in ms, failed, documents; None: not published.
POOL_OF_POOLS = [
    ("published, keyed pool of drivers", 1, 220, None, None, None, 0, 1000),
    ("published, keyed pool of drivers", 50, None, None, 120_000, None, 870, 130),
    ("published, one shared driver", 50, 910, 55, 103, 127, 0, 1000),
]
# Case 1: milliseconds per operation, and connections opened per hour.
CHURN = {"min 0": (145, 240), "min 10": (12, None), "min 30": (4.2, None), "as published": (None, 12)}

FORMS_5 = {"trouble": "pool 20", "size": "pool 40", "as published": "40, min 6, wait 2 s, idle 5 min", "poolhouse": "through Poolhouse"}
FORMS_4 = {"no limit": "ours, keyed pool of MongoClients, no limit", "trouble": "ours, keyed pool of MongoClients", "published": "ours, one shared MongoClient",
           "poolhouse": "ours, keyed pool, through Poolhouse"}
FORMS_1 = {"min 0": "min 0", "min 10": "min 10", "min 30": "min 30", "as published": "cure as published: min 20, idle 5 min, life 30 min",
           "no idle limit": "min 20, no idle limit", "poolhouse": "through Poolhouse, service as with min 0"}
FROZEN = {"forgets": "directly, through a network that forgets who is silent for 60 s", "direct": "directly, and nothing on the way forgets",
          "limit 60": "through Poolhouse, `client_idle_time` 60 s", "limit 310": "through Poolhouse, `client_idle_time` 310 s"}
FLOOD = {"direct": "directly, {limit} connections", "one limit": "through Poolhouse, soft and hard limit {limit}",
         "two limits": "through Poolhouse, soft limit {soft}, hard limit {limit}"}
# A p99 beyond this is a wait for a connection, and not the stall of 200 ms itself.
WAITED_MS = 300


def markdown(report):
    """The whole page."""
    sections = {"5": exhaustion, "4": pool_of_pools, "1": churn, "3": functions}
    lines = ["# MongoDB: the published cases, run here", ""]
    lines += ["Service: `examples/telemetry` with the official Java driver. Server: mongo-java-server, in memory, without login. In front of it is "
              "a network of our own that makes answers and new connections slower. Where Poolhouse is used, it stands beside the service, "
              "and the network is behind it. Case 3 has functions in Python and our own load generator in place of the service. Milliseconds, "
              "unless something else is said.", ""]
    lines += conditions(report)
    for number, case in report["cases"].items():
        lines += ["", *sections[number](case)]
    lines += ["", f"The whole took {report['seconds']:.0f} s."]
    return "\n".join(lines)


def lost(report):
    """Runs in which less was there than had been acknowledged."""
    return [run for run in runs(report) if run.get("documents", 0) < run.get("acknowledged", 0)]


def runs(report):
    """Everything that was measured as one load."""
    cases = report["cases"]
    for form in cases.get("5", {}).get("forms", {}).values():
        yield form
        if "hard" in form:
            yield form["hard"]
    for form in cases.get("4", {}).get("forms", {}).values():
        yield from form
    for form in cases.get("1", {}).get("forms", {}).values():
        yield from form.values()
    for half in cases.get("3", {}).values():
        yield from half["forms"].values()


def conditions(report):
    """How far the machine lets the figures be trusted."""
    shares = [run["processors"] for run in runs(report) if "processors" in run]
    others = max((share["others"] for share in shares), default=0.0)
    lines = [f"Load average at the start {report['load_average']:.1f} on {report['processors']} processors."]
    if others > 0.1:
        lines[0] += f" **Other programs took up to {others:.0%} of the processors during a run, so judge the shape only.**"
    open_loops = [form["processors"]["own"] for form in report["cases"].get("5", {}).get("forms", {}).values()]
    if open_loops:
        lines[0] += f" In case 5 everything measured here took at most {max(open_loops):.0%} of them."
    if report["quick"]:
        lines += ["", "**A quick run: it shows that everything works. Its figures mean little.**"]
    return lines


def table(header, rows):
    return [f"| {' | '.join(header)} |", "|" + "-|" * len(header), *(f"| {' | '.join(row)} |" for row in rows)]


def number(value):
    if value is None:
        return "–"
    if not value:
        return "0"
    return f"{value:,.1f}" if isinstance(value, float) and value < 10 else f"{value:,.0f}"


def percent(share):
    return "0%" if not share else f"{share:.1%}" if share >= 0.001 else f"{share:.2%}"


# -- case 5


def exhaustion(case):
    """The ramp, and the longer stall."""
    forms = case["forms"]
    rows = []
    for at, rate in enumerate(EXHAUSTION[100]):
        row = [rate, published(EXHAUSTION[100][rate]), published(EXHAUSTION[200][rate]), str(int(rate) // 5)]
        rows.append(row + [measured(form["steps"][at]) for form in forms.values()])
    lines = ["## Case 5: exhaustion under load", "",
             f"Readings arrive in a straight ramp from one rate to the next, {case['step_s']} s each. Once in each step the database answers 200 ms late for "
             f"{case['stall_s']:g} s. Scale 1:5: a pool of 20 stands for 100, 40 for 200, and 20 connections / 200 ms are 100 requests/s where the "
             "published pool reached its limit at 500/s. Through Poolhouse the service has a pool of up to 200, and Poolhouse 40 connections to the "
             "database. Each cell: p50 / p95 / p99, errors.", "",
             *table(["published /s", "published, pool 100", "published, pool 200", "ours /s", *(FORMS_5[name] for name in forms)], rows), ""]
    lines += [f"- {shape(name, FORMS_5[name], form['steps'])}" for name, form in forms.items()]
    share = case["stall_s"] / case["step_s"]
    lines += [f"- The stall takes {share:.0%} of each step, a few percent in the published account. So p95 shows the stall's own 200 ms at every rate: "
              "look at p99, and at how far it is beyond 200 ms."]
    if not any(step["errors"] for step in forms["trouble"]["steps"]):
        lines += ["- Differs from the published table: nothing fails with the pool of 20. A stall of this length makes requests wait less than the 5 s "
                  "after which the driver gives up. The published errors need a longer stall."]
    lines += ["- Poolhouse cannot help a service whose driver keeps its pool of 20: its requests wait before they reach Poolhouse. A larger `maxPoolSize` "
              "costs the database nothing then. (This follows from the column of the pool of 20; it was not run.)"]
    hard = {name: form["hard"] for name, form in forms.items() if "hard" in form}
    if hard:
        lines += ["", f"A longer stall: the same 200 ms for {first_of(hard)['stall_s']} s, at {first_of(hard)['rate']} requests/s. We chose it so that the pool of 20 makes "
                  "requests wait for more than 5 s.", "",
                  *table(["", "p50 / p95 / p99, errors", "max", "which"],
                         [[FORMS_5[name], measured(part), number(part["max"]), reasons(part)] for name, part in hard.items()]),
                  "", *longer_words(forms, hard)]
    return lines + ["", f"- {kept_line([*forms.values(), *hard.values()])}"]


def longer_words(forms, hard):
    """What the longer stall shows."""
    lines = []
    for name, part in hard.items():
        failed = ", ".join(f"{count} by {reason}" for reason, count in forms[name]["failed_check_outs"].items()) or "none"
        lines += [f"- {FORMS_5[name]}: {percent(part['error_share'])} failed. The service counts the check-outs that its driver refused: {failed}."]
    if "trouble" in hard and not hard["trouble"]["errors"]:
        lines += ["- **Differs: with the pool of 20 requests should have waited for more than 5 s, and failed.**"]
    return lines


def first_of(parts):
    return next(iter(parts.values()))


def published(figures):
    p50, p95, p99, errors = figures
    return f"{number(p50)} / {number(p95)} / {number(p99)}, {errors:g}%"


def measured(step):
    return f"{number(step['p50'])} / {number(step['p95'])} / {number(step['p99'])}, {percent(step['error_share'])}"


def reasons(step):
    return ", ".join(f"{kind}: {count}" for kind, count in step["why"].items()) or "–"


def shape(name, title, steps):
    """Where requests begin to wait for a connection, and whether that is where they should."""
    rates = [int(rate) // 5 for rate in EXHAUSTION[100]]
    bent = [rate for rate, step in zip(rates, steps) if (step["p99"] or 0) > WAITED_MS or step["error_share"] > 0.001]
    last = steps[-1]["p99"]
    if not bent:
        text = f"no step's p99 is beyond {WAITED_MS} ms"
        return f"{title}: {text}" + (". **Differs: the published pool bends above 500/s.**" if name == "trouble" else ", as published for the cure.")
    text = f"p99 is beyond {WAITED_MS} ms at {', '.join(map(str, bent))} /s, and {number(last)} ms at the last rate"
    if name == "trouble":
        where = "The bend is where it was published: above 100/s." if min(bent) > 100 else "**Differs: it should begin above 100/s.**"
        return f"{title}: {text}. {where}"
    if name == "as published":
        return (f"{title}: {text}. **Differs from the published cure.** A minimum of 6 has to grow in the stall, which delays the opening as well, and "
                "the driver opens two connections at a time. The size helps if the connections are there.")
    return f"{title}: {text}. **Differs: there should be none.**"


# -- case 4


def pool_of_pools(case):
    """The three rounds of requests."""
    rows = [[title, str(clients), number(per_s), number(mean), number(p99), number(most), number(failed), "–", f"{documents:,} of 1,000", "–", "–"]
            for title, clients, per_s, mean, p99, most, failed, documents in POOL_OF_POOLS]
    for name, parts in case["forms"].items():
        for part in parts:
            rows.append([FORMS_4[name], str(part["clients"]), number(part["per_s"]), number(part["mean"]), number(part["p99"]), number(part["max"]),
                         number(part["errors"]), f"{part['acknowledged']:,}", f"{part['documents']:,} of {case['requests']:,}",
                         number(part["relay"]["most"]), number(part["relay"]["refused"])])
    lines = ["## Case 4: a pool of pools", "",
             f"{case['requests']:,} POSTs, one at a time, then 50 at a time, then 50 at a time again. The keyed pool has up to {case['drivers']} MongoClients, "
             f"each with minPoolSize=4 and maxPoolSize=10. The server lets in {case['limit']} connections and closes any other at once. We chose that limit "
             "because it shows the trouble: with a higher one fewer requests fail. The driver gives "
             f"up after {case['patience_ms']:,} ms where the published one did after 120,000.", "",
             *table(["", "clients", "requests/s", "mean", "p99", "max", "failed", "answered 201", "in the database", "most connections", "refused"], rows), ""]
    trouble, cure, through = (case["forms"][name] for name in ("trouble", "published", "poolhouse"))
    failed = [part["errors"] for part in trouble]
    lines += [f"- With the limit and directly, the keyed pool works at concurrency 1 ({failed[0]} failed). At 50 it {'fails' if failed[1] else '**works, too**'} "
              f"({failed[1]} failed: {reasons(trouble[1])}), and {'does not recover' if failed[2] else 'works'} when the same is asked once more "
              f"({failed[2]} failed).",
              "- Differs from the published account: there, everything hung after 130 documents, because the client of that time locked itself up. "
              "Today's driver did not: without a limit nothing fails here. Probably "
              "the limit leaves some of the MongoClients without connections, so that whoever meets one of them waits in vain or gets an error."]
    if "no limit" in case["forms"]:
        free = case["forms"]["no limit"]
        lines += [f"- Without the limit, the keyed pool opens {most_open(free)} connections, and {sum(part['errors'] for part in free)} requests fail."]
    lines += [f"- One shared MongoClient: {sum(part['errors'] for part in cure)} failed, at most {most_open(cure)} connections."]
    last = through[-1]
    seen = last["at_poolhouse"]
    lines += [f"- Through Poolhouse the same keyed pool: {sum(part['errors'] for part in through)} failed, at most {most_open(through)} "
              f"connections to the database. `/api/clients` lists {seen['used'] + seen['only_hello']} connections of this one service: {seen['used']} that "
              f"have asked for something and {seen['only_hello']} that have only said hello (idle ones of the minimum, and monitors). They share "
              f"{last['servers']['created']} servers."]
    return lines + [f"- {kept_line([part for parts in case['forms'].values() for part in parts])}"]


def most_open(parts):
    return max(part["relay"]["most"] for part in parts)


# -- case 1


def churn(case):
    """The bursts."""
    forms = case["forms"]
    rows = []
    for name, form in forms.items():
        together, single = form["at_once"], form["one_by_one"]
        operation, per_hour = CHURN.get(name, (None, None))
        rows.append([FORMS_1[name], number(operation), number(single["mean"]), number(single["max"]), number(together["mean"]), number(together["p99"]),
                     number(per_hour), number(together["opened_per_hour"]), number(single["opened_per_hour"]), number(together["driver_per_hour"])])
    return ["## Case 1: churn", "",
            f"Bursts of {case['burst']} finds, each after {case['idle_s']:g} s of silence: {case['rounds']['at_once']} with all finds at once, then "
            f"{case['rounds']['one_by_one']} with one find at a time. A second stands for {case['compression']}: "
            f"the silence is five minutes, maxIdleTimeMS is {case['limit_ms']} (60 s), and the driver looks after its pool as often (once in 60 s by "
            "default). A new connection costs 50 ms more than an answer, in place of TLS and a login. That cost is not compressed. Rates are per hour of "
            "the published time.", "",
            *table(["", "published, per operation", "one at a time, mean", "max", f"{case['burst']} at once, mean", "p99", "published, opened per hour",
                    "opened at the database per hour, at once", "one at a time", "by the driver, at once"], rows), "",
            *churn_words(forms, case["rounds"]["at_once"])]


def churn_words(forms, rounds):
    """What the table shows, and where it differs from the published one."""
    together = {name: form["at_once"] for name, form in forms.items()}
    through, none = together["poolhouse"], together["min 0"]
    lines = [f"- min 0: each burst opens {number(none['relay']['opened'] / rounds)} connections, and its slowest find takes {number(none['max'])} ms. Differs "
             "from the published account, where a burst opened 20 to 40: today's driver opens two at a time, and a connection that is free again serves "
             "the next find."]
    means = [together[name]["mean"] for name in ("min 0", "min 10", "min 30") if name in together]
    order = "the published order" if means == sorted(means, reverse=True) else "**not the published order**"
    lines += [f"- Finds in a burst take {', '.join(map(number, means))} ms on average as the minimum grows, which is {order}. With a minimum ours stay "
              "slower than published, since 50 finds at once share a few processors with the service, the server and the load."]
    if "as published" in together:
        kept, half = together["as published"], together["no idle limit"]
        lines += ["- A minimum alone does not end the churn with this driver, which differs from the published table: maxIdleTimeMS closes connections "
                  "below the minimum, too, and the driver opens others in their place. "
                  f"That makes {number(together['min 30']['opened_per_hour'])} an hour with min 30 (more, if opening them did not take its own time), and "
                  f"{number(kept['opened_per_hour'])} with the published cure (published: 12). Finds seldom wait for them, because the driver opens them in "
                  f"the background. Without an idle limit it is {number(half['opened_per_hour'])}."]
    lines += [f"- Through Poolhouse the service keeps its settings and its driver still opens {number(through['driver_per_hour'])} connections an hour, to "
              "Poolhouse, without TLS and without the network between. (More than directly, because one is open sooner.) The database sees "
              f"{number(through['opened_per_hour'])}, and keeps {through['relay']['open']} open (Poolhouse's own monitor is one of them)."]
    for kind, words in (("at_once", "all at once"), ("one_by_one", "one at a time, later")):
        servers = forms["poolhouse"][kind]["servers"]
        closed = ", ".join(f"{count} by {reason}" for reason, count in servers["closed"].items() if count) or "none"
        lines += [f"- By the end of the bursts {words}, Poolhouse had opened {servers['created']} servers since its start, and closed: {closed}."]
    return lines


# -- case 3


def functions(case):
    """Functions that are frozen, and the flood of them."""
    frozen, flood = case["frozen"], case["flood"]
    parts = [*frozen["forms"].values(), *flood["forms"].values()]
    return ["## Case 3: functions that never say goodbye", "", *frozen_lines(frozen), "", *flood_lines(flood), "", f"- {kept_line(parts)}"]


def frozen_lines(case):
    """What became of functions that were frozen."""
    forms, seconds = case["forms"], 1 / case["compression"]
    calls = lambda part: [f"{part['errors']} of {part['asked']}", number(part["max"])]
    rows = []
    for name, form in forms.items():
        here = form["held"]["poolhouse"]
        shown = "–" if here is None else f"{here['used']} used, {here['only_hello']} only hello"
        rows.append([FROZEN[name], number(form["held"]["database"]), shown, *calls(form["thawed"]), *calls(form["next"]), number(form["opened"])])
    trouble, short, long = (forms[name] for name in ("forgets", "limit 60", "limit 310"))
    lines = [f"{case['functions']} functions, each a process with a MongoClient of its own, are called, frozen (SIGSTOP), called again as they thaw "
             f"after 95 s, and called once more. A second stands for {case['compression']}, so they are frozen for {95 * seconds:.1f} s. The driver "
             f"waits {case['timeout_ms']:,} ms for an answer (20 s). Published, with Redis: the server ends the connection after 60 s, the call of the "
             "thawed function fails (ETIMEDOUT), and works when the server waits for 310 s, longer than the platform keeps a frozen function.", "",
             *table(["", "open at the database while frozen", "at Poolhouse", "thawed: failed", "max", "the next call: failed", "max", "opened again"], rows),
             ""]
    why = ", ".join(trouble["thawed"]["why"]) or "none"
    fails = "fails" if trouble["thawed"]["errors"] else "**works, which differs**"
    lines += [f"- Where the network forgets the connection, the call of a thawed function {fails} (errors: {why}) after as long as its driver waits. "
              "MongoDB itself ends no connection that is idle, so with nothing on the way that forgets, every frozen function keeps its connections at "
              "the database."]
    lines += [f"- Through Poolhouse with a limit of 60 s: {short['thawed']['errors']} calls fail. Differs from the published account: Poolhouse's goodbye "
              "waits in the function's kernel, and the driver (pymongo) looks for it before it uses a connection that was idle for more than a second. The call "
              f"takes {number(short['thawed']['max'])} ms, with a new connection. With 310 s: {long['thawed']['errors']} fail, and the call takes "
              f"{number(long['thawed']['max'])} ms."]
    lines += [f"- The database has {number(long['held']['database'])} connections then, and {number(forms['direct']['held']['database'])} without Poolhouse. "
              "A network that forgets does so between a function and Poolhouse, too: let `client_idle_time` be shorter than the network's limit."]
    return lines


def flood_lines(case):
    """What became of the flood."""
    limits = {"limit": case["limit"], "soft": case["soft"]}
    rows = []
    for name, form in case["forms"].items():
        begin = "–" if form["failing_from"] is None else f"{form['failing_from']:.0f} s"
        rows.append([FLOOD[name].format(**limits), f"{form['acknowledged']:,} of {form['asked']:,}", number(form["errors"]), begin, reasons(form),
                     number(form["p99"]), number(form["most"]), number(form.get("evicted")), number(form.get("rejected"))])
    trouble, one, two = (case["forms"][name] for name in ("direct", "one limit", "two limits"))
    fail = f"**{two['errors']} fail**" if two["errors"] else "none fails"
    lines = [f"A flood: {case['rate']} functions a second arrive for {case['seconds']} s. Each asks three times within 400 ms and keeps its connection "
             f"without using it again. {case['limit']} connections are let in.", "",
             *table(["", "served", "failed", "failing from", "which", "p99", "most connections to the database", "sent away", "refused"], rows), ""]
    lines += [f"- With one limit, MongoDB's own or Poolhouse's, {trouble['errors']} and {one['errors']} functions fail: connections that nobody will use again "
              "take the places of those who come.",
              f"- With two limits {fail}: between them, those that are idle longest make room. "
              f"The database has {number(two['most'])} connections."]
    return lines


def kept_line(parts):
    """Whether every document that was acknowledged is there."""
    acknowledged, documents = sum(part["acknowledged"] for part in parts), sum(part["documents"] for part in parts)
    missing = sum(max(part["acknowledged"] - part["documents"], 0) for part in parts)
    if missing:
        return f"**{missing} documents that were acknowledged are not in the database.**"
    more = sum(max(part["documents"] - part["acknowledged"], 0) for part in parts)
    return f"Every document that was acknowledged is in the database: {acknowledged:,} acknowledged, {documents:,} there" + (
        f" ({more} were written although their answer was an error)." if more else ".")
