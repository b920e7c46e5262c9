"""Resident memory per idle client: many clients that have each run a query and then wait.

Refuses to know which pooler it looks at.
"""

import time

import cpu
import wire
from cluster import DATABASE, USER

# Time for a pooler to give back what it needs only in passing.
SETTLE = 2.0


def run(pooler, count):
    """Bytes that each of `count` idle clients adds to a freshly started pooler."""
    # The servers and one client's worth of code are there before; what is counted is clients alone.
    warm = wire.crowd(pooler.port, USER, DATABASE, 50)
    wire.drop(warm)
    time.sleep(0.5)
    before = cpu.resident(pooler.pid())
    clients = wire.crowd(pooler.port, USER, DATABASE, count // 2)
    time.sleep(SETTLE)
    half = cpu.resident(pooler.pid())
    clients += wire.crowd(pooler.port, USER, DATABASE, count - count // 2, first=count // 2)
    time.sleep(SETTLE)
    after = cpu.resident(pooler.pid())
    answering = wire.count_answering(clients)
    wire.drop(clients)
    return {
        "failed": count - answering,
        "complaint": None if answering == count else f"{count - answering} of {count} clients had been dropped",
        "clients": count,
        "resident_before": before,
        "resident_half": half,
        "resident_after": after,
        "bytes_per_client": (after - before) / count,
        # Of the second half alone: free memory left from the start can flatter the whole, but hardly this.
        "marginal_bytes_per_client": (after - half) / (count - count // 2),
    }
