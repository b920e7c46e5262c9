"""Invented results in the JSON of `poolhouse bench`, for tests of the report page. They come from a calculated queue;
no figure is a measurement.
"""

import base64
import math
import random
import struct

FORMAT = 1
REASONS = ("burst", "minimum", "rotation", "replacement")


def encode(values_us):
    """Encodes microseconds in HdrHistogram's V2 format (1 us to 1 h, 3 digits), written from its description:
    https://github.com/HdrHistogram/HdrHistogram/blob/master/src/main/java/org/HdrHistogram/AbstractHistogram.java
    """
    half = 1024                                     # sub-buckets of each half: 3 digits need 2048 in all
    counts = {}
    for value in values_us:
        bucket = max(0, int(value).bit_length() - 11)
        index = (bucket + 1) * half + (int(value) >> bucket) - half
        counts[index] = counts.get(index, 0) + 1
    body, last = bytearray(), -1
    for index in sorted(counts):
        if index - last > 1:
            body += zigzag(-(index - last - 1))
        body += zigzag(counts[index])
        last = index
    head = struct.pack(">iiiiqqd", 0x1C849303 | 0x10, len(body), 0, 3, 1, 3_600_000_000, 1.0)
    return base64.b64encode(head + body).decode()


def zigzag(value):
    """A signed number as LEB128, at most nine bytes."""
    value, out = (value << 1) ^ (value >> 63), bytearray()
    value &= (1 << 64) - 1
    while value >= 0x80 and len(out) < 8:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return out


def percentiles(values_ms, keep=True):
    if not values_ms:
        return None
    ordered = sorted(values_ms)
    at = lambda quantile: round(ordered[min(len(ordered) - 1, math.ceil(quantile * len(ordered)) - 1)], 3)
    return {"count": len(ordered), "min": round(ordered[0], 3), "mean": sum(ordered) / len(ordered), "p50": at(.5), "p90": at(.9), "p95": at(.95),
            "p99": at(.99), "p999": at(.999), "max": round(ordered[-1], 3),
            "histogram": encode([max(1, round(value * 1000)) for value in ordered]) if keep else None}


class Queue:
    """A queue of operations that arrive at given times, with `servers` servers and occasional stalls: how long each
    operation waits and takes."""

    def __init__(self, size, seed, stall=(20, 2.0, 0.2)):
        self.random, self.size, self.stall = random.Random(seed), size, stall
        self.free = [0.0] * size

    def run(self, arrivals, patience=1.0):
        every, length, delay = self.stall
        for at in arrivals:
            index = min(range(self.size), key=self.free.__getitem__)
            begin = max(at, self.free[index])
            if begin - at > patience:
                yield at, at + patience, patience, None
                continue
            service = self.random.lognormvariate(math.log(0.012), 0.35) + (delay if begin % every > every - length else 0)
            self.free[index] = begin + service
            yield at, begin + service, begin - at, service


def measured(done, seconds, created):
    good = [one for one in done if one[3] is not None]
    failed = len(done) - len(good)
    phase = random.Random(len(done))
    draw = lambda middle: percentiles([phase.lognormvariate(math.log(middle), 0.4) for _ in range(max(created, 1))]) if created else None
    return {
        "requests": len(good), "finished": len(good), "errors": {"check-out timeout": failed} if failed else {}, "dropped": 0, "duration_s": seconds,
        "response_ms": percentiles([(end - at) * 1000 for at, end, _, _ in good]), "service_ms": percentiles([service * 1000 for *_, service in good]),
        "pool_wait_ms": percentiles([wait * 1000 for _, _, wait, _ in good]),
        "connect_ms": {"dns": None, "tcp": draw(.08), "tls": draw(2.4), "auth": draw(5.1), "ready": draw(.21), "total": draw(8.0)},
        "connections": {"created": created, "created_for": {"burst": created - created // 3, "rotation": created // 3} if created else {},
                        "closed": {"life": created // 3, "idle": created // 4} if created else {}, "most": created, "last": created - created // 4},
        "generator_cpu_s": seconds * .07,
    }


def result(name, size=20, rates=(100, 300, 500), step_s=30, seed=7, warmup_s=5, warnings=()):
    """An open load in stages through a pool of `size`."""
    rng, arrivals, now = random.Random(seed), [], 0.0
    length = warmup_s + step_s * len(rates)
    while now < length:
        rate = rates[0] if now < warmup_s else rates[min(len(rates) - 1, int((now - warmup_s) // step_s))]
        now += rng.expovariate(rate)
        arrivals.append(now)
    done = list(Queue(size, seed).run(arrivals))
    series = seconds(length, done, size, rng)
    steps = [{"name": f"{rate}/s", "from_s": warmup_s + index * step_s,
              **measured([one for one in done if warmup_s + index * step_s <= one[0] < warmup_s + (index + 1) * step_s], step_s, size if index == 0 else index * 3)}
             for index, rate in enumerate(rates)]
    about = {"started": 1_795_327_845, "seed": seed, "shape": "open", "load": f"open loop, Poisson arrivals, {', '.join(f'{rate}/s' for rate in rates)}, {step_s} s each",
             "pool": f"max_size {size}, max_wait_time 1 s", "target": "postgres://app@127.0.0.1:5432/sample", "server": "SampleSQL 1.0", "version": "0.0.0 (a made-up sample)",
             "machine": "2 x a made-up processor, 8 GB", "command": f"poolhouse bench sample.toml --max-size {size}"}
    return {"format": FORMAT, "name": name, "about": about, **measured([one for one in done if one[0] >= warmup_s], step_s * len(rates), size + 9), "steps": steps,
            "series": series, "interrupted": False, "warnings": list(warnings)}


def seconds(length, done, size, rng):
    ended, arrived, held, waiting = ([[] for _ in range(length + 1)] for _ in range(4))
    for one in done:
        at, end, wait, service = one
        arrived[min(length, int(at))].append(one)
        ended[min(length, int(end))].append(one)
        for then in range(math.ceil(at), min(length, math.ceil(end))):
            (held if service is not None and at + wait <= then else waiting)[then].append(one)
    return [second(at, arrived[at], ended[at], len(held[at + 1]), len(waiting[at + 1]), size, rng) for at in range(length)]


def second(at, arrived, ended, held, waiting, size, rng):
    times = sorted((end - begin) * 1000 for begin, end, _, service in ended if service is not None)
    pick = lambda quantile: times[min(len(times) - 1, math.ceil(quantile * len(times)) - 1)] if times else None
    return {"at_s": float(at), "arrived": len(arrived), "requests": len(times), "errors": len(ended) - len(times), "dropped": 0,
            "p50_ms": pick(.5), "p99_ms": pick(.99), "max_ms": pick(1), "connections": size, "in_use": min(size, held), "waiting": waiting,
            "created": size if at == 0 else (rng.random() < .05) * 2}


def variants():
    """Results of one problem and its cures: the pool is too small for the stalls, larger, and large enough."""
    return [result("max_size 20", 20, warnings=["The pool was exhausted in 14 of 95 seconds: operations waited for a connection for up to 1.9 s."]),
            result("max_size 60", 60), result("max_size 150", 150)]


def sweep(through=False, most=256, seed=3):
    """An invented sweep of a database that follows the Universal Scalability Law, with noise."""
    rng, gamma, alpha, beta = random.Random(seed), 1400.0, .03, .00045
    law = lambda clients: gamma * clients / (1 + alpha * (clients - 1) + beta * clients * (clients - 1))

    def curve(name, target, numbers, of):
        points = []
        for clients in numbers:
            value = of(clients) * rng.gauss(1, .015)
            p50 = clients / value * 1000
            points.append({"clients": clients, "visits": 3, "throughput": value, "low": value * .97, "high": value * 1.03, "p50_ms": p50, "p95_ms": p50 * 1.9,
                           "p99_ms": p50 * 3.4, "errors": 0, "generator_cores": .4, "machine_idle": .2})
        visits = [{"at_s": 4.0 * index, "round": index % 3, "clients": point["clients"], "throughput": point["throughput"], "p50_ms": point["p50_ms"],
                   "p95_ms": point["p95_ms"], "p99_ms": point["p99_ms"], "errors": 0, "per_second": [point["throughput"]] * 3, "generator_cores": .4,
                   "machine_idle": .2} for index, point in enumerate(points)]
        peak, estimate = math.sqrt((1 - alpha) / beta), lambda value: {"value": value, "low": value * .8, "high": value * 1.2}
        line = [{"clients": at, "throughput": law(at)} for at in (1.15 ** step for step in range(int(math.log(max(numbers), 1.15)) + 1))]
        return {"name": name, "target": target, "points": points, "visits": visits, "no_fit": None, "effort": {"visits": 31, "exhaustive_visits": 96, "seconds": 124.0},
                "steadiness": {"noise": .015, "reference_clients": 16, "reference": [1.0, 1.01], "drift": .006, "drifted": False},
                "fit": {"gamma": estimate(gamma), "alpha": estimate(alpha), "beta": estimate(beta), "peak_clients": peak, "peak_tested": peak < max(numbers),
                        "r_squared": .994, "residual": .02, "line": line}}

    numbers = [1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 64, 96, 128, 192, 256]
    direct = curve("directly", "postgres://app@127.0.0.1:5432/sample", [clients for clients in numbers if clients <= most], law)
    pooled = curve("through the pooler", "postgres://app@127.0.0.1:6432/sample", numbers + [512, 1000, 2500, 5000, 10000], lambda clients: law(min(clients, 32)) * .96)
    best = max(direct["points"], key=lambda point: point["throughput"])
    use = next(point for point in direct["points"] if point["throughput"] >= best["throughput"] * .95)
    return {
        "format": 1, "kind": "sweep", "asked": {"clients_from": 1, "clients_to": most, "rounds": 3, "point_s": 3.0, "warmup_s": 1.0},
        "about": {"started": 1_795_327_845, "seed": seed, "shape": "closed", "load": "select-only, simple protocol, scale 50", "pool": "-",
                  "target": direct["target"], "server": "SampleSQL 1.0", "version": "0.0.0 (a made-up sample)", "machine": "2 x a made-up processor, 8 GB",
                  "command": "poolhouse sweep postgres://app@127.0.0.1:5432/sample"},
        "direct": direct, "through": pooled if through else None, "interrupted": False, "warnings": [],
        "verdict": {"best_clients": best["clients"], "best_throughput": best["throughput"], "best_from": 32, "best_to": 64, "recommended_clients": use["clients"],
                    "recommended_throughput": use["throughput"], "loss": {"value": .03, "low": .01, "high": .05}, "bracketed": most > 64, "shape": "peak",
                    "limited_by": "database", "confidence": "high",
                    "because": [f"Throughput was best with {best['clients']} clients.", f"{use['clients']} clients already give 95% of it.", "It falls on both sides."]},
        "settings": {"max_size": use["clients"], "max_connections": use["clients"] + 14, "reserve": 14,
                     "because": ["The pool: what was recommended.", "The server: that, and a reserve for administrators and backups.", "More would only queue inside the database."]},
    }
