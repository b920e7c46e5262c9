"""An application on a platform of functions: a process with a MongoClient, which the platform freezes between two calls
and thaws for the next one. It does not know what it connects to, nor what a test expects.
"""

import contextlib
import json
import signal
import subprocess
import sys

from support.waiting import eventually

# The program writes a document for each number that it reads, and prints the error, if any, and the duration.
PROGRAM = """
import json, sys, time, pymongo
client = pymongo.MongoClient(sys.argv[1])
collection = client[sys.argv[2]][sys.argv[3]]
for line in sys.stdin:
    began, error = time.monotonic(), None
    try:
        collection.insert_one({"_id": int(line)})
    except pymongo.errors.PyMongoError as caught:
        error = repr(caught)
    print(json.dumps({"error": error, "ms": 1000 * (time.monotonic() - began)}), flush=True)
"""


class Function:
    """One function. Its driver connects to `url` and writes to a collection of a database."""

    def __init__(self, url, database="app", collection="things"):
        command = [sys.executable, "-c", PROGRAM, url, database, collection]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def tell(self, number):
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()

    def hear(self):
        return json.loads(self.process.stdout.readline())

    def write(self, number):
        """Calls the function once: its error and duration."""
        self.tell(number)
        return self.hear()

    @contextlib.contextmanager
    def frozen(self):
        self.process.send_signal(signal.SIGSTOP)
        eventually("it is frozen", lambda: state_of(self.process.pid) == "T")
        yield
        self.process.send_signal(signal.SIGCONT)


def state_of(pid):
    """The state of a process, as the kernel names it."""
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0]
