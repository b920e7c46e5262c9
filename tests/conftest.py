"""Fixtures: one PostgreSQL cluster for the whole run, and a pooler for each test that starts one."""

import os
import pathlib
import re
import resource
import shutil
import tempfile
import time

import pytest

from support import pooler
from support.certificates import Certificates
from support.file_order import longest_first
from support.postgres_cluster import Cluster, SecureCluster

LISTED_USERS = ("app", "app2", "md5user", "plainuser")
# A Java server that runs for seconds would spend most of its CPU time in the optimizing compiler.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_configure(config):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else max(soft, 20000), hard))
    if pooler.KIND == "poolhouse" and not os.access(pooler.BINARY, os.X_OK):
        raise pytest.UsageError(f"{pooler.BINARY} does not exist: run `make build`, or name another with POOLHOUSE=path")


def pytest_collection_modifyitems(config, items):
    items[:] = longest_first(items)
    # `-p no:rerunfailures` repeats nothing.
    repeats = config.pluginmanager.hasplugin("rerunfailures")
    for item in items:
        if pooler.KIND != "poolhouse" and "poolhouse_only" in item.keywords:
            item.add_marker(pytest.mark.skip(reason=f"says nothing about {pooler.KIND}"))
        if repeats and "timing" in item.keywords:
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_terminal_summary(terminalreporter):
    """Counts the tests that failed once and were repeated."""
    repeated = terminalreporter.stats.get("rerun", [])
    passed = {report.nodeid for report in terminalreporter.stats.get("passed", [])}
    if repeated:
        terminalreporter.section("tests marked `timing` that failed once and were repeated")
        for report in repeated:
            terminalreporter.line(f"{'passed' if report.nodeid in passed else 'failed'} the second time: {report.nodeid}")
        terminalreporter.line(f"repeated: {len(repeated)}")


@pytest.fixture(scope="session")
def workspace():
    """A directory that unprivileged servers can reach, with a path short enough for Unix sockets."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="poolhouse-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def session_cluster(workspace):
    directory = workspace / "pg"
    directory.mkdir()
    cluster = Cluster(directory)
    try:
        cluster.make()
        yield cluster
    finally:
        if cluster.running():
            cluster.stop("immediate")


@pytest.fixture(scope="session")
def certificates(workspace):
    return Certificates(workspace)


@pytest.fixture(scope="session")
def session_secure_cluster(workspace, certificates):
    directory = workspace / "pgs"
    directory.mkdir()
    cluster = SecureCluster(directory, certificates.server)
    try:
        cluster.make()
        yield cluster
    finally:
        if cluster.running():
            cluster.stop("immediate")


@pytest.fixture
def secure_cluster(session_secure_cluster, certificates):
    """A cluster that requires TLS over the network, with its usual certificate."""
    session_secure_cluster.show(certificates.server)
    return session_secure_cluster


@pytest.fixture
def cluster(session_cluster):
    """The shared cluster, running, without sessions of the test before."""
    if not session_cluster.running():
        session_cluster.start()
    deadline = time.monotonic() + 5
    while left := session_cluster.backends(*LISTED_USERS):
        if time.monotonic() > deadline:
            for user in LISTED_USERS:
                session_cluster.terminate(user)
            pytest.fail(f"sessions were left behind on PostgreSQL: {left}")
        time.sleep(0.02)
    return session_cluster


@pytest.fixture
def start(cluster, workspace, request):
    """Starts a pooler with these settings. Each is stopped and its log examined when the test is over."""
    yield from starter(cluster, workspace, request, None)


@pytest.fixture(params=["poolhouse", "pgbouncer"])
def start_either(cluster, workspace, request):
    """As `start`, for a test that runs with Poolhouse and with PgBouncer 1.26, which have to behave in the same way."""
    if request.param == "pgbouncer" and not pooler.PgBouncer.is_newest():
        pytest.skip("no PgBouncer 1.26 is installed")
    yield from starter(cluster, workspace, request, request.param)


def starter(cluster, workspace, request, kind):
    started = []

    def start_pooler(**settings):
        made = unstarted()
        return made.start(**settings)

    def unstarted():
        directory = workspace / f"{re.sub('[^a-z0-9]', '_', request.node.name[:40])}-{len(started)}-{os.urandom(4).hex()}"
        directory.mkdir()
        made = pooler.make(directory, cluster, kind)
        started.append(made)
        return made

    start_pooler.unstarted = unstarted
    yield start_pooler
    problems = []
    for made in started:
        try:
            made.stop()
        except AssertionError as problem:
            problems.append(str(problem))
    assert not problems, "\n".join(problems)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Adds the end of the pooler's log, and how to run the test alone, to a failure."""
    report = yield
    if report.failed:
        for name in sorted(pathlib.Path(tempfile.gettempdir()).glob(f"poolhouse-*/{re.sub('[^a-z0-9]', '_', item.name[:40])}-*/log")):
            report.sections.append((f"log of {name.parent.name}", name.read_text(errors="replace")[-6000:]))
        report.sections.append(("run it alone", f"make test-e2e PYTEST_ARGS='-k {item.name.split('[')[0]}'"))
    return report


@pytest.fixture
def script(tmp_path):
    """Writes a script for the load generator and returns its path."""
    def write(text):
        path = tmp_path / "script.sql"
        path.write_text(text)
        return path
    return write
