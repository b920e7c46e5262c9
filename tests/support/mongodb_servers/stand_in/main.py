#!/usr/bin/env python3
"""Poses as a MongoDB replica set, or as a mongos in front of one, and has another MongoDB-compatible server keep the documents.

    main.py --ports 27017[,27018 ...] --backing 127.0.0.1:27117 [--sharded]

It adds what that server lacks and drivers' tests need: `failCommand`, sessions, retryable writes, transactions, labels of errors, elections.
Other than a MongoDB, it carries out one command after the other, and secondaries are never behind.
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
        """A time later than all before."""
        now = int(time.time())
        self.time = (now, 1) if now > self.time[0] else (self.time[0], self.time[1] + 1)
        return bson.Timestamp(*self.time)

    async def step_down(self, backing):
        """The next member is elected; transactions of the one before are over."""
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
