#!/usr/bin/env python3
"""Simulates a MongoDB replica set, or a mongos in front of one. Another MongoDB-compatible server keeps the documents.

    main.py --ports 27017[,27018 ...] --backing 127.0.0.1:27117 [--sharded]

It adds what that server lacks and drivers' tests need: `failCommand`, sessions, retryable writes, transactions, labels
of errors, elections. Unlike MongoDB it executes one command after another, and secondaries never lag.
"""

import argparse
import asyncio
import time

import bson
from member import Member
from transactions import Sessions


class Deployment:
    """What all members have in common."""

    def __init__(self, ports, backing, sharded):
        self.backing, self.sharded = backing, sharded
        self.sessions, self.turn, self.term, self.service, self.time = Sessions(), asyncio.Lock(), 1, bson.ObjectId(), (0, 0)
        self.members = [Member(self, port) for port in ports]
        self.primary = self.members[0]

    def hosts(self):
        return [member.address() for member in self.members]

    def tick(self):
        """A time later than all times before."""
        now = int(time.time())
        self.time = (now, 1) if now > self.time[0] else (self.time[0], self.time[1] + 1)
        return bson.Timestamp(*self.time)

    async def step_down(self, backing):
        """Elects the next member. Transactions of the old primary are over."""
        await self.sessions.step_down(backing)
        self.primary = self.members[(self.members.index(self.primary) + 1) % len(self.members)]
        self.term += 1


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ports", required=True)
    parser.add_argument("--backing", required=True)
    parser.add_argument("--sharded", action="store_true", help="pose as a mongos")
    chosen = parser.parse_args()
    host, port = chosen.backing.rsplit(":", 1)
    deployment = Deployment([int(port) for port in chosen.ports.split(",")], (host, int(port)), chosen.sharded)
    for member in deployment.members:
        await member.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
