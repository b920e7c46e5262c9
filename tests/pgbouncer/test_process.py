"""The process: in the background, with a pid file and a log file; what signals do."""

import concurrent.futures
import os
import re
import pathlib
import signal
import subprocess
import time

import psycopg
import pytest

from support.ini_pooler import command, run
from support.pooler import BINARY
from support.postgres_cluster import unprivileged
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def background(kind, folder, cluster):
    """Starts it in the background: (pooler, number of the process). It is ended afterwards."""
    from support.ini_pooler import IniPooler
    pids = []

    def start(**settings):
        pooler = IniPooler(kind, folder, cluster)
        pooler.write(pidfile=folder / "p.pid", logfile=folder / "p.log", **settings)
        status, said = run(kind, folder, "-d", pooler.ini)
        assert status == 0, said
        # PgBouncer writes it a moment later.
        eventually("there is a pid file", lambda: (folder / "p.pid").exists() and (folder / "p.pid").read_text())
        pids.append(int((folder / "p.pid").read_text()))
        return pooler, pids[-1]

    yield start
    for pid in pids:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_it_runs_in_the_background_until_it_is_told_to_end(background, kind, folder):
    pooler, pid = background()
    with pooler.connect() as client:
        assert client.execute("SELECT 1").fetchone() == (1,)
    assert os.getsid(pid) != os.getsid(0)
    status, said = run(kind, folder, "-d", pooler.ini)
    assert status == 1 and "p.pid" in said, said
    os.kill(pid, signal.SIGINT)
    eventually("it ends", lambda: not is_alive(pid))
    assert not (folder / "p.pid").exists()
    assert "SIGINT" in (folder / "p.log").read_text()


def test_a_log_file_that_is_moved_away_is_opened_anew(background, folder):
    pooler, pid = background()
    (folder / "p.log").rename(folder / "old.log")
    os.kill(pid, signal.SIGHUP)

    def is_written():
        # What is logged opens the file.
        with pooler.connect() as db:
            db.execute("SELECT 1")
        return (folder / "p.log").exists() and (folder / "p.log").read_text()

    eventually("there is a new one", is_written, every=0.2)


def test_a_mistake_is_told_by_the_process_in_the_foreground(kind, folder, cluster):
    (folder / "p.ini").write_text("[databases]\na = host=h\n[pgbouncer]\nnonsense = 1\n")
    status, said = run(kind, folder, "-d", "p.ini")
    assert status == 1 and "nonsense" in said, said


def test_the_background_needs_a_pid_file(kind, folder):
    (folder / "userlist.txt").write_text('"a" "b"\n')
    (folder / "p.ini").write_text("[databases]\na = host=h\n[pgbouncer]\nauth_file = userlist.txt\n")
    status, said = run(kind, folder, "-d", "p.ini")
    assert status == 1 and "pidfile" in said, said


def test_sigterm_waits_until_clients_have_left(serve_ini):
    pooler = serve_ini()
    client = pooler.connect()
    client.execute("SELECT 1")
    pooler.signal(signal.SIGTERM)
    eventually("it is told", lambda: "SIGTERM" in pooler.log())

    def refuses():
        try:
            pooler.connect(connect_timeout=2).close()
            return False
        except psycopg.OperationalError:
            return True

    eventually("no client gets in", refuses)
    assert client.execute("SELECT 2").fetchone() == (2,)
    client.close()
    assert pooler.wait(10) is not None
    pooler.process = None


def test_sigint_lets_a_transaction_end(serve_ini):
    pooler = serve_ini(pool_mode="transaction")
    with pooler.connect() as client:
        client.execute("BEGIN")
        client.execute("SELECT 1")
        pooler.signal(signal.SIGINT)
        eventually("it is told", lambda: "SIGINT" in pooler.log())
        assert client.execute("SELECT 2").fetchone() == (2,)
        client.execute("COMMIT")
    assert pooler.wait(10) is not None
    pooler.process = None


@pytest.mark.parametrize("pauses", [False, True])
def test_sigint_sends_clients_away_that_wait_for_a_server(serve_ini, pauses):
    pooler = serve_ini(default_pool_size=1, pool_mode="transaction", admin_users="app")
    with pooler.connect() as holder, pooler.connect() as waiting, concurrent.futures.ThreadPoolExecutor() as threads:
        if pauses:
            with pooler.connect(database="pgbouncer") as console:
                console.execute("PAUSE")
        else:
            holder.execute("BEGIN")
            holder.execute("SELECT 1")
        answer = threads.submit(waiting.execute, "SELECT 1")
        time.sleep(0.5)
        pooler.signal(signal.SIGINT)
        assert isinstance(answer.exception(10), psycopg.OperationalError)
        if not pauses:
            holder.execute("COMMIT")
    assert pooler.wait(10) is not None
    pooler.process = None


def test_sigquit_ends_at_once(serve_ini):
    pooler = serve_ini()
    with pooler.connect() as client:
        client.execute("SELECT 1")
        pooler.signal(signal.SIGQUIT)
        assert pooler.wait(10) is not None
        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 2")
    pooler.process = None


def test_sigusr1_pauses_and_sigusr2_resumes(serve_ini, cluster):
    pooler = serve_ini(pool_mode="transaction")
    with pooler.connect() as client:
        client.execute("SELECT 1")
        pooler.signal(signal.SIGUSR1)
        eventually("no server is left", lambda: not cluster.backends("app"))
        pooler.signal(signal.SIGUSR2)
        assert client.execute("SELECT 2").fetchone() == (2,)


def test_the_line_with_sums_comes_each_period(serve_ini):
    pooler = serve_ini(stats_period=1)
    eventually("two lines have come", lambda: pooler.log().count("stats: ") >= 2)
    line = next(line for line in pooler.log().splitlines() if "stats: " in line)
    shape = r"stats: \d+ xacts/s, \d+ queries/s, .*\d+ client logins/s, in \d+ B/s, out \d+ B/s, xact \d+ us, query \d+ us, wait \d+ us$"
    assert re.search(shape, line), line


def test_quiet_says_nothing_on_standard_error(kind, folder, serve_ini):
    pooler = serve_ini()
    with open(folder / "said", "wb") as said:
        other = subprocess.Popen(command(kind, "-q", pooler.ini), cwd=folder, stdout=said, stderr=said, **unprivileged())
    # The port is taken: it cannot serve.
    assert other.wait(10) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_it_becomes_the_user_that_is_named(folder, cluster):
    from support.ini_pooler import IniPooler
    import pwd
    pooler = IniPooler("poolhouse", folder, cluster)
    name = pwd.getpwuid(unprivileged()["user"]).pw_name
    pooler.write(user=name)
    pooler.launch([BINARY, "pgbouncer", str(pooler.ini)])
    status = pathlib.Path(f"/proc/{pooler.process.pid}/status").read_text()
    uids = next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1:]
    assert set(uids) == {str(unprivileged()["user"])}
    with pooler.connect() as client:
        assert client.execute("SELECT 1").fetchone() == (1,)
    pooler.stop()


def test_under_the_name_pgbouncer_it_has_its_command_line(folder, cluster):
    (folder / "pgbouncer").symlink_to(BINARY)
    done = subprocess.run([folder / "pgbouncer", "-V"], capture_output=True, text=True)
    assert done.returncode == 0 and "PgBouncer 1.26" in done.stdout
    done = subprocess.run([folder / "pgbouncer"], capture_output=True, text=True)
    assert done.returncode == 1 and "no configuration file" in done.stderr
