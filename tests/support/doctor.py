"""Runs `poolhouse doctor` as a user does, and reads the JSON that it prints."""

import json
import os
import subprocess

from support.pooler import BINARY


def look(what, *more, window="4s", **environment):
    """Runs the verb on a target: its JSON, and the ended process."""
    command = [BINARY, "doctor", str(what), "--window", window, "--every", "100ms", "--json", "-", *map(str, more)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **environment})
    said = json.loads(done.stdout) if done.stdout else None
    return said, done


def symptoms(said):
    return [finding["symptom"] for finding in said["findings"]]
