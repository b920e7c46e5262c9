"""Which programs there are, how each is built, and what is expected of it behind Poolhouse. The only place to change
when Poolhouse learns something: take the check's name out of NOT_YET.
"""

import dataclasses
import pathlib

ROOT = pathlib.Path(__file__).parent

# Check -> why it is not expected to work in transaction mode. It is run in session mode instead.
NOT_YET = {
    "cursors_with_hold": "WITH HOLD cursors by more clients than max_pinned",
}
# The same of single programs, whose check of that name does by name what others do without.
NOT_YET_OF = {}


@dataclasses.dataclass(frozen=True)
class Program:
    """`needs`: what must be on PATH. `build`: commands run once before. Everything runs in the program's own directory.
    """

    name: str
    language: str
    run: tuple
    needs: tuple = ()
    build: tuple = ()
    # What a user should know, for the table.
    notes: str = ""

    @property
    def directory(self):
        return ROOT / self.name


PYTHON = ("{python}", "main.py")
PROGRAMS = [
    Program("psql", "SQL", PYTHON, ("psql",)),
    Program("pgbench", "SQL", PYTHON,
            notes="with `-M prepared`, more clients than servers and fewer threads than clients, pgbench can wait for itself: while a thread prepares, it does "
                  "not serve its other clients, whose transactions hold the servers. Use `-j` as large as `-c`"),
    Program("psycopg", "Python", PYTHON),
    Program("psycopg2", "Python", PYTHON),
    Program("asyncpg", "Python", PYTHON),
    Program("node-postgres", "JavaScript", ("node", "main.mjs"), ("node", "npm"), (("npm", "ci", "--no-audit", "--no-fund"),)),
    Program("postgres-js", "JavaScript", ("node", "main.mjs"), ("node", "npm"), (("npm", "ci", "--no-audit", "--no-fund"),),
            notes="version 3.4.9 sometimes hangs in a large `COPY … TO STDOUT`, with PostgreSQL itself, too"),
    Program("pgx", "Go", ("./pgx",), ("go",), (("go", "build", "-mod=readonly", "-o", "pgx", "."),)),
    Program("jdbc", "Java", ("java", "-cp", "classes:lib/*", "Main"), ("java", "javac", "mvn"),
            (("rm", "-rf", "lib", "classes"), ("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"), ("sha256sum", "--check", "--quiet", "jars.sha256"),
             ("javac", "-cp", "lib/*", "-d", "classes", "Main.java"))),
    Program("tokio-postgres", "Rust", ("target/debug/poolhouse-client-tokio-postgres",), ("cargo",), (("cargo", "build", "--locked", "--target-dir", "target"),)),
]


def by_name(name):
    return next(program for program in PROGRAMS if program.name == name)


def not_yet(program, check):
    """Why this check is not expected to work in transaction mode, or None if it is."""
    return NOT_YET_OF.get(program.name, {}).get(check, NOT_YET.get(check))
