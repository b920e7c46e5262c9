"""What the console changes of the log, at once and until the next RELOAD, and what a reload of the file changes of it."""

from support.waiting import eventually

import pytest

pytestmark = pytest.mark.poolhouse_only


@pytest.fixture
def pooler(serve_ini):
    return serve_ini(admin_users="app")


def at_console(pooler):
    return pooler.connect(database="pgbouncer")


def lines(pooler, text):
    return pooler.log().count(text)


def comes_and_goes(pooler):
    pooler.connect().close()


def test_logins_and_ends_are_logged_as_set(pooler):
    with at_console(pooler) as console:
        comes_and_goes(pooler)
        eventually("both are logged", lambda: lines(pooler, "bench/app") and "closing because" in pooler.log())
        for setting in ("log_connections", "log_disconnections"):
            console.execute(f"SET {setting} = 0")
        comes_and_goes(pooler)
        eventually("it is quiet", lambda: is_quiet(pooler))
        console.execute("RELOAD")
        before = lines(pooler, "login attempt: db=bench")
        comes_and_goes(pooler)
        eventually("the file holds again", lambda: lines(pooler, "login attempt: db=bench") == before + 1)


def is_quiet(pooler):
    before = pooler.log()
    comes_and_goes(pooler)
    new = pooler.log()[len(before):]
    return "login attempt" not in new and "closing because: client" not in new


def test_a_reload_changes_what_is_logged(pooler):
    comes_and_goes(pooler)
    eventually("it is logged", lambda: "login attempt: db=bench" in pooler.log())
    pooler.write(admin_users="app", log_connections=0, log_disconnections=0)
    pooler.reload()
    eventually("it is quiet", lambda: is_quiet(pooler))


def test_more_is_logged_for_a_while(pooler):
    def shown(console, key):
        return {row[0]: row[1] for row in console.execute("SHOW CONFIG").fetchall()}[key]

    with at_console(pooler) as console:
        assert shown(console, "verbose") == "0" and "DEBUG" not in pooler.log()
        console.execute("SET verbose = 2")
        comes_and_goes(pooler)
        console.execute("SHOW STATE")
        eventually("more is logged", lambda: "DEBUG" in pooler.log() or "NOISE" in pooler.log())
        console.execute("SET verbose = 0")
        assert shown(console, "verbose") == "0"
        console.execute("SET stats_period = 1")
        assert shown(console, "stats_period") == "1"


def test_the_consoles_own_client_is_active(pooler):
    with at_console(pooler) as console, pooler.connect() as client:
        client.execute("SELECT 1")
        for what, databases in (("ACTIVE_SOCKETS", ["pgbouncer"]), ("SOCKETS", ["bench", "pgbouncer"])):
            rows = [row for row in console.execute(f"SHOW {what}").fetchall() if row[0] == "C"]
            assert sorted(row[2] for row in rows) == databases, what
            assert [row[4] for row in rows if row[2] == "pgbouncer"] == ["cl_active"], what
