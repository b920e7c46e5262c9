"""pg_dump and pg_restore, with several connections at once, in transaction mode; and the query with which every pg_dump
begins.
"""

import time

import psycopg
import pytest

pytestmark = pytest.mark.poolhouse_only

SIZE = 6
# pg_dump sends this to servers that have the parameter.
RESTRICTS = "SELECT set_config(name, '{}', false) FROM {} WHERE name = '{}'"


@pytest.fixture
def dumped(cluster):
    """A schema with a few tables, and a database to restore them into."""
    with cluster.superuser("bench") as db, cluster.superuser("other") as other:
        db.execute("DROP SCHEMA IF EXISTS dumped CASCADE; CREATE SCHEMA dumped AUTHORIZATION app")
        for n in range(6):
            db.execute(f"CREATE TABLE dumped.t{n} AS SELECT a, a::text AS b FROM generate_series(1, 50) AS a; ALTER TABLE dumped.t{n} OWNER TO app")
            db.execute(f"CREATE INDEX ON dumped.t{n} (a)")
        other.execute("DROP SCHEMA IF EXISTS dumped CASCADE; GRANT CREATE ON DATABASE other TO app")
        yield
        db.execute("DROP SCHEMA dumped CASCADE")
        other.execute("DROP SCHEMA IF EXISTS dumped CASCADE; REVOKE CREATE ON DATABASE other FROM app")


def test_pg_dump_and_pg_restore_use_several_connections(start, dumped, tmp_path):
    made = start(max_size=SIZE, databases={"bench": {}, "other": {}})
    dump = made.run("pg_dump", "-j4", "-Fd", "-n", "dumped", "-f", tmp_path / "dump")
    assert dump.returncode == 0, dump.stdout
    restore = made.run("pg_restore", "-j4", "-d", "other", tmp_path / "dump")
    assert restore.returncode == 0, restore.stdout
    with made.connect(database="other") as db:
        assert db.execute("SELECT count(*) FROM dumped.t5").fetchone() == (50,)
    assert "53400" not in made.log()


def pinned(made):
    """The reasons why clients keep their servers at present."""
    return {dict(labels)["reason"] for (name, labels), value in made.metrics().items() if name == "poolhouse_pinned" and value}


@pytest.mark.parametrize("view", ["pg_settings", "pg_catalog.pg_settings"])
def test_a_setting_that_pg_settings_names_follows_its_client(start, view):
    made = start(max_size=2)
    with made.connect() as one, made.connect() as other:
        assert one.execute(RESTRICTS.format("7MB", view, "work_mem")).fetchone() == ("7MB",)
        assert one.execute(RESTRICTS.format("evil", view, "no_such_thing")).fetchone() is None
        # The request behind it waited until Poolhouse knew what was left.
        one.execute("SELECT 1")
        assert pinned(made) == set()
        with other.transaction():
            assert other.execute("SHOW work_mem").fetchone() == ("4MB",)
            assert one.execute("SHOW work_mem").fetchone() == ("7MB",)
        assert other.execute("SHOW work_mem").fetchone() == ("4MB",)


@pytest.fixture
def another_view(cluster):
    """Another relation of that name, for which `=` means something else."""
    with cluster.superuser("bench") as db:
        db.execute("DROP SCHEMA IF EXISTS odd CASCADE; CREATE SCHEMA odd; GRANT ALL ON SCHEMA odd TO app")
        db.execute("CREATE COLLATION odd.blind (provider = icu, locale = 'und-u-ka-shifted', deterministic = false)")
        db.execute("CREATE TABLE odd.pg_settings (name text COLLATE odd.blind); INSERT INTO odd.pg_settings VALUES ('work.mem'); GRANT ALL ON odd.pg_settings TO app")
        yield
        db.execute("DROP SCHEMA odd CASCADE")


ODD = RESTRICTS.format("evil", "pg_settings", "workmem")


@pytest.mark.parametrize("before, behind", [
    (["SET search_path = odd, pg_catalog"], []),
    (["BEGIN", "SET LOCAL search_path = odd, pg_catalog"], ["COMMIT"]),
    (["SET search_path = odd, pg_catalog", "BEGIN"], ["SET LOCAL search_path = public", "COMMIT"]),
    (["CREATE TEMP TABLE pg_settings AS SELECT * FROM odd.pg_settings", "BEGIN"], ["DISCARD TEMP", "COMMIT"]),
], ids=["a search_path", "a search_path of the transaction", "a search_path before that", "a temporary table"])
def test_a_setting_that_another_view_names_does_not_go_unseen(start, another_view, before, behind):
    made = start(max_size=2, max_wait_time="300ms")
    with made.connect() as one:
        for sql in (*before, ODD, *behind):
            one.execute(sql)
        assert one.execute("SHOW work.mem").fetchone() == ("evil",)
        deadline = time.monotonic() + 15
        while not pinned(made) & {"unknown_setting", "temporary_object"}:
            assert time.monotonic() < deadline, "it is not kept"
            time.sleep(0.02)
        with made.connect() as other:
            assert other.execute("SELECT current_setting('work.mem', true)").fetchone() == (None,)
    deadline = time.monotonic() + 15
    while True:
        try:
            with made.connect() as newcomer:
                assert newcomer.execute("SELECT coalesce(current_setting('work.mem', true), '')").fetchone() == ("",)
                break
        except psycopg.OperationalError:
            assert time.monotonic() < deadline
