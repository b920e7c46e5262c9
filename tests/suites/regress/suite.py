"""PostgreSQL's regression suite: which files in which order, how psql is run with one, and whether it said what is
expected.

Does what pg_regress does, with one difference: where the server listens, and with which password, is an argument. Knows
nothing of poolers.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess

from support.postgres_cluster import give_away, program, unprivileged

DATABASE = "regression"
# The longest takes a few seconds.
FILE_SECONDS = 120
# As pg_regress is told by PostgreSQL's makefile.
AT_ONCE = 20
# What pg_regress keeps from psql, since it would change what is printed.
UNSET = ("LANGUAGE", "LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MONETARY", "LC_NUMERIC", "LC_TIME", "PGCLIENTENCODING", "PGOPTIONS", "PGSERVICE",
         "PGSSLMODE", "PGCHANNELBINDING", "PGCONNECT_TIMEOUT")
PREPARATION = """
CREATE DATABASE regression TEMPLATE=template0;
ALTER DATABASE regression SET lc_messages TO 'C';
ALTER DATABASE regression SET lc_monetary TO 'C';
ALTER DATABASE regression SET lc_numeric TO 'C';
ALTER DATABASE regression SET lc_time TO 'C';
ALTER DATABASE regression SET bytea_output TO 'hex';
ALTER DATABASE regression SET timezone_abbreviations TO 'Default';
"""


def prepare(cluster):
    with cluster.superuser() as db:
        for statement in PREPARATION.strip().splitlines():
            db.execute(statement)


class Suite:
    """A copy of the suite that the server can read from and write into."""

    def __init__(self, source, libraries, directory):
        self.directory, self.libraries = pathlib.Path(directory), libraries
        for name in ("sql", "expected", "data"):
            shutil.copytree(source / name, self.directory / name)
        shutil.copytree(libraries, self.directory / "lib")
        for name in ("results", "testtablespace"):
            (self.directory / name).mkdir()
            give_away(self.directory / name)
        self.groups = schedule((source / "parallel_schedule").read_text())

    def environment(self, name, target):
        kept = {key: value for key, value in os.environ.items() if key not in UNSET}
        return {**kept, "PGAPPNAME": f"pg_regress/{name}", "PGTZ": "America/Los_Angeles", "PGDATESTYLE": "Postgres, MDY", "PGOPTIONS": "-c intervalstyle=postgres_verbose",
                "LANG": "C", "LC_MESSAGES": "C", "PG_ABS_SRCDIR": str(self.directory), "PG_ABS_BUILDDIR": str(self.directory), "PG_LIBDIR": str(self.directory / "lib"),
                "PG_DLSUFFIX": ".so", "PGHOST": target["host"], "PGPORT": str(target["port"]), "PGUSER": target["user"], "PGPASSWORD": target["password"]}

    def run(self, target, only=(), at_once=AT_ONCE, told=lambda name, difference: None):
        """Each file's name with what differs from what is expected, "" for nothing. `told` hears of each."""
        outcomes = {}
        for group in self.groups:
            chosen = [name for name in group if not only or name in only or name == "test_setup"]
            with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
                for name, difference in zip(chosen, pool.map(lambda name: self.run_file(name, target), chosen)):
                    outcomes[name] = difference
                    told(name, difference)
        return outcomes

    def run_file(self, name, target):
        result = self.directory / "results" / f"{name}.out"
        command = [program("psql"), "-X", "-a", "-q", "-d", DATABASE, "-v", "HIDE_TABLEAM=on", "-v", "HIDE_TOAST_COMPRESSION=on"]
        with (self.directory / "sql" / f"{name}.sql").open() as script, result.open("w") as output:
            try:
                subprocess.run(command, stdin=script, stdout=output, stderr=subprocess.STDOUT, env=self.environment(name, target), timeout=FILE_SECONDS,
                               cwd=self.directory, **unprivileged())
            except subprocess.TimeoutExpired:
                return f"psql did not end within {FILE_SECONDS} s"
        return self.difference(name, result)

    def difference(self, name, result):
        """From the best of the files with expected output: PostgreSQL has up to eleven for a test."""
        expected = [self.directory / "expected" / f"{name}.out", *(self.directory / "expected" / f"{name}_{number}.out" for number in range(10))]
        found = [subprocess.run(["diff", "-U3", path, result], text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
                 for path in expected if path.exists()]
        return min(found, key=len)


def schedule(text):
    """Groups of files: each group needs those before it."""
    return [line.split(":")[1].split() for line in re.sub(r"#.*", "", text).splitlines() if line.startswith("test:")]
