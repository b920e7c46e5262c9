"""`poolhouse convert`, and `check` and `serve --config` with a pgbouncer.ini."""

import subprocess

import pytest

from support.ini_pooler import IniPooler
from support.pooler import BINARY

pytestmark = pytest.mark.poolhouse_only


def poolhouse(*arguments, folder):
    return subprocess.run([BINARY, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=20)


@pytest.fixture
def pooler(folder, cluster):
    made = IniPooler("poolhouse", folder, cluster)
    made.write(pkt_buf=8192, databases={"bench": f"host=127.0.0.1 port={cluster.port} user=app password='app secret'"})
    yield made
    made.stop()


def test_what_is_printed_serves_the_same(pooler, folder):
    done = poolhouse("convert", pooler.ini, folder=folder)
    assert done.returncode == 0 and "without effect here: pkt_buf" in done.stderr, done.stderr
    converted = folder / "poolhouse.toml"
    converted.write_text(done.stdout)
    converted.chmod(0o600)
    checked = poolhouse("check", converted, folder=folder)
    assert checked.returncode == 0, checked.stderr
    pooler.launch([BINARY, "serve", "--config", str(converted)])
    with pooler.connect() as client:
        assert client.execute("SELECT current_user").fetchone() == ("app",)
    pooler.signal()
    assert pooler.wait(10) == 0
    pooler.process = None


def test_passwords_in_a_file_that_others_read_are_told_of(pooler, folder):
    with open(folder / "seen.toml", "w") as out:
        done = subprocess.run([BINARY, "convert", pooler.ini], stdout=out, stderr=subprocess.PIPE, text=True)
    assert "contains passwords" in done.stderr
    (folder / "seen.toml").chmod(0o600)
    with open(folder / "seen.toml", "w") as out:
        done = subprocess.run([BINARY, "convert", pooler.ini], stdout=out, stderr=subprocess.PIPE, text=True)
    assert "contains passwords" not in done.stderr


def test_check_and_serve_know_an_ini(pooler, folder):
    checked = poolhouse("check", pooler.ini, folder=folder)
    assert checked.returncode == 0 and "a file of PgBouncer's" in checked.stdout, checked.stdout + checked.stderr
    pooler.launch([BINARY, "serve", "--config", str(pooler.ini)])
    with pooler.connect() as client:
        assert client.execute("SELECT 1").fetchone() == (1,)


def test_a_mistake_of_the_translation_is_told_at_its_place_in_the_ini(pooler, folder):
    pooler.write(peer_id=20000)
    checked = poolhouse("check", pooler.ini, folder=folder)
    line = next(n for n, text in enumerate(pooler.ini.read_text().splitlines(), 1) if "peer_id" in text)
    assert checked.returncode == 2 and f"pgbouncer.ini:{line}:" in checked.stderr, checked.stderr
