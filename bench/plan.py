"""What is measured: the workloads, who takes part in each, and the goals.

Refuses to know how anything is measured.
"""

from dataclasses import dataclass, replace

US = "poolhouse-1"
US_TWO = "poolhouse-2"
RIVAL = "pgbouncer"
IDLE = "idle-10000"
# Share of one worker's capacity that is offered to compare one worker with two.
OFFERED = 0.6


@dataclass(frozen=True)
class Workload:
    """A load, and the targets that get it."""

    name: str
    script: str
    protocol: str
    clients: int
    targets: tuple
    # Transactions offered per second; 0 is a closed loop.
    rate: float = 0.0
    # The rate is to be OFFERED times what one worker served in this workload.
    rate_from: str = ""

    @property
    def pausable(self):
        """Whether its clients can be stopped at any moment: they hold no locks, and no schedule waits for them."""
        return self.script == "select" and not self.rate_from

    def at(self, rate):
        """The same at a rate."""
        return replace(self, rate=rate)


def workloads():
    """All of them, in the order of a round."""
    three = (RIVAL, US, US_TWO)
    plan = []
    for protocol in ("simple", "extended", "prepared"):
        for clients in (1, 20, 50, 1000, 5000):
            targets = three if protocol == "simple" else (RIVAL, US)
            if clients == 50 and protocol == "simple":
                targets += ("haproxy", "pgpool2")
            plan.append(Workload(f"select-{protocol}-{clients}", "select", protocol, clients, targets))
    plan.append(Workload("tpcb-50", "tpcb", "simple", 50, three))
    plan.append(Workload("offered-50", "select", "simple", 50, three, rate_from="select-simple-50"))
    return plan


@dataclass(frozen=True)
class Goal:
    """A limit that a ratio of two targets, or a value of one, should keep."""

    text: str
    workload: str
    # Field of a run; of `ours`, divided by the one of `theirs` of the same round unless that is empty.
    field: str
    ours: str
    theirs: str
    limit: float
    # Whether the value should be at least the limit rather than at most.
    at_least: bool = False


def goals():
    """The goals of the project for speed and memory."""
    found = []
    for workload in workloads():
        if workload.rate_from:
            continue
        found.append(Goal("throughput / PgBouncer's", workload.name, "throughput", US, RIVAL, 1.0, at_least=True))
        found.append(Goal("CPU of pooler and database / PgBouncer's", workload.name, "both_us", US, RIVAL, 1.0))
        limit = {1: 1.05, 20: 1.0, 50: 0.95}.get(workload.clients, 0.9)
        found.append(Goal("CPU per transaction / PgBouncer's", workload.name, "cpu_us", US, RIVAL, limit))
    found.append(Goal("CPU per transaction, two workers / one", "offered-50", "cpu_us", US_TWO, US, 1.15))
    found.append(Goal("largest share of a worker of two", "offered-50", "largest_share", US_TWO, "", 0.55))
    for protocol in ("simple", "extended"):
        found.append(Goal("p99 / p50", f"select-{protocol}-5000", "p99_over_p50", US, "", 1.5))
    found.append(Goal("memory per idle client / PgBouncer's", IDLE, "bytes_per_client", US, RIVAL, 1.0))
    found.append(Goal("bytes per idle client", IDLE, "bytes_per_client", US, "", 1300.0))
    return found
