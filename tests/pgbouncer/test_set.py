"""SET at the console of a pgbouncer.ini: what it changes at once, until when, and what it refuses."""

import psycopg
import pytest

from support.certificates import Authority
from support.postgres_cluster import give_away
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


@pytest.fixture
def served(serve_ini):
    """Starts with app as admin: (pooler, what gives commands at the console)."""
    consoles = []

    def serve(**settings):
        pooler = serve_ini(admin_users="app", **settings)
        console = pooler.connect(database="pgbouncer")
        consoles.append(console)

        def give(command):
            with console.cursor() as cursor:
                cursor.execute(command, prepare=False)
                return cursor.fetchall() if cursor.description else None

        return pooler, give

    yield serve
    for console in consoles:
        console.close()


def value(give, name):
    return next(row[1] for row in give("SHOW CONFIG") if row[0] == name)


def test_how_clients_prove_who_they_are_changes(served):
    pooler, give = served(auth_type="trust")
    with pooler.connect(password="wrong") as client:
        assert client.execute("SELECT 1").fetchone() == (1,)
    give("SET auth_type = 'scram-sha-256'")
    with pytest.raises(psycopg.OperationalError, match="SASL authentication failed"):
        pooler.connect(password="wrong")
    pooler.connect().close()


def test_a_value_lasts_until_the_file_is_read_again(served):
    _, give = served(query_timeout="7")
    assert value(give, "query_timeout") == "7"
    give("SET query_timeout = 9")
    give("SET idle_transaction_timeout = 8")
    assert (value(give, "query_timeout"), value(give, "idle_transaction_timeout")) == ("9", "8")
    give("RELOAD")
    assert (value(give, "query_timeout"), value(give, "idle_transaction_timeout")) == ("7", "0")


@pytest.mark.parametrize("command", ["nonsense = 1", "pool_mode = foo", "query_timeout = x", "auth_type = foo"])
def test_what_makes_no_sense_changes_nothing(served, command):
    _, give = served()
    before = give("SHOW CONFIG")
    with pytest.raises(psycopg.Error, match="SET failed"):
        give(f"SET {command}")
    assert give("SHOW CONFIG") == before


def test_tls_of_clients_goes_on_and_off(served, folder):
    authority = Authority(folder)
    issued = authority.issue("server", "localhost", "IP:127.0.0.1")
    for path in folder.iterdir():
        give_away(path)
    pooler, give = served()
    with pytest.raises(psycopg.OperationalError):
        pooler.connect(sslmode="require")
    give(f"SET client_tls_key_file = '{issued.key}'")
    give(f"SET client_tls_cert_file = '{issued.certificate}'")
    give("SET client_tls_sslmode = require")
    pooler.connect(sslmode="require").close()
    with pytest.raises(psycopg.OperationalError):
        pooler.connect(sslmode="disable")
    give("SET client_tls_sslmode = disable")
    pooler.connect(sslmode="disable").close()


def test_the_level_of_the_log_changes(served):
    pooler, give = served()
    pooler.connect().close()
    assert " DEBUG " not in pooler.log()
    give("SET verbose = 2")
    give("SHOW CLIENTS")
    eventually("there is more", lambda: " DEBUG " in pooler.log())


def test_requests_are_counted_at_once(served):
    pooler, give = served(pool_mode="transaction")
    with pooler.connect() as client:
        client.execute("SELECT 1")
        client.execute("SELECT 2")
        row = next(row for row in give("SHOW STATS_TOTALS") if row[0] == "bench")
    assert (row[2], row[3]) == (2, 2)


def test_a_reload_that_fails_has_the_code_of_a_configuration_error(served):
    pooler, give = served()
    pooler.ini.write_text(pooler.ini.read_text() + "server_lifetime = soon\n")
    with pytest.raises(psycopg.errors.ConfigFileError, match="RELOAD failed"):
        give("RELOAD")


def test_a_key_waits_for_its_certificate(served, folder):
    authority = Authority(folder)
    pairs = [authority.issue(name, "localhost", "IP:127.0.0.1") for name in ("one", "two")]
    for path in folder.iterdir():
        give_away(path)
    pooler, give = served(client_tls_sslmode="require", client_tls_key_file=pairs[0].key, client_tls_cert_file=pairs[0].certificate)
    give(f"SET client_tls_key_file = '{pairs[1].key}'")
    pooler.connect(sslmode="require").close()
    give(f"SET client_tls_cert_file = '{pairs[1].certificate}'")
    pooler.connect(sslmode="require").close()
