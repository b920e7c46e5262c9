"""Reported parameters belong to the client, whichever server serves it."""

import pytest

from support import postgres_wire as w


def show(connection, name):
    return connection.execute(f"SHOW {name}").fetchone()[0]


SETTINGS = [
    ("DateStyle", "SQL, DMY", "ISO, YMD"), ("TimeZone", "Europe/Paris", "Asia/Tokyo"),
    ("application_name", "first app", "second app"), ("client_encoding", "LATIN1", "UTF8"),
    ("standard_conforming_strings", "off", "on"),
    pytest.param("IntervalStyle", "iso_8601", "postgres_verbose", marks=pytest.mark.poolhouse_only),
]


@pytest.mark.parametrize("name, mine, yours", SETTINGS)
def test_a_parameter_set_at_start_up_follows_its_client(start, name, mine, yours):
    pooler = start(max_size=1)
    with pooler.wire(**{name: mine}) as one, pooler.wire(**{name: yours}) as other:
        for _ in range(3):
            assert one.query(f"SHOW {name}") == [[mine]]
            assert other.query(f"SHOW {name}") == [[yours]]
        assert one.parameters[name] == mine and other.parameters[name] == yours


@pytest.mark.parametrize("name, mine, yours", SETTINGS)
def test_a_parameter_that_is_set_later_follows_its_client(start, name, mine, yours):
    pooler = start(max_size=1)
    if name == "application_name" and not pooler.is_poolhouse:
        pytest.skip("PgBouncer does not take back an application_name that a client without one inherits")
    with pooler.wire() as one, pooler.wire() as other:
        default = other.query(f"SHOW {name}")
        one.query(f"SET {name} = '{mine}'")
        assert one.parameters[name] == mine
        assert other.query(f"SHOW {name}") == default
        other.query(f"SET {name} = '{yours}'")
        for _ in range(3):
            assert one.query(f"SHOW {name}") == [[mine]]
            assert other.query(f"SHOW {name}") == [[yours]]


def test_a_parameter_set_in_a_transaction_that_rolls_back_is_as_before(start):
    pooler = start(max_size=1)
    with pooler.connect() as one, pooler.connect() as other:
        before = show(one, "TimeZone")
        with one.transaction(force_rollback=True):
            one.execute("SET TimeZone = 'Asia/Tokyo'")
            assert show(one, "TimeZone") == "Asia/Tokyo"
        assert show(other, "TimeZone") == before
        assert show(one, "TimeZone") == before
        with one.transaction():
            one.execute("SET LOCAL DateStyle = 'SQL, DMY'")
        assert show(other, "DateStyle") == show(one, "DateStyle") != "SQL, DMY"


def test_values_with_quotes_and_backslashes_are_passed_on_faithfully(start):
    pooler = start(max_size=1)
    odd = "it's \"odd\" \\ ; DROP TABLE x; --"
    with pooler.wire(application_name=odd) as one, pooler.wire(application_name="plain") as other:
        for _ in range(3):
            assert one.query("SHOW application_name") == [[odd]]
            assert other.query("SHOW application_name") == [["plain"]]


def test_the_application_name_is_seen_in_pg_stat_activity(start, cluster):
    pooler = start(max_size=1)
    with pooler.connect(application_name="billing") as connection:
        connection.execute("SELECT 1")
        assert [b.application_name for b in cluster.backends()] == ["billing"]


def test_text_in_another_encoding_arrives_intact(start):
    pooler = start(max_size=1)
    with pooler.connect(client_encoding="LATIN1") as latin, pooler.connect() as utf8:
        for _ in range(2):
            assert latin.execute("SELECT %s::text, octet_length('ü')", ["grün"]).fetchone() == ("grün", 2)
            assert utf8.execute("SELECT %s::text, octet_length('ü')", ["grün"]).fetchone() == ("grün", 2)
        utf8.execute("DROP TABLE IF EXISTS t_enc; CREATE TABLE t_enc (s text)")
        latin.execute("INSERT INTO t_enc VALUES (%s)", ["Österreich"])
        assert utf8.execute("SELECT s FROM t_enc").fetchone() == ("Österreich",)
        utf8.execute("DROP TABLE t_enc")


def test_parameters_follow_in_the_extended_protocol_too(start):
    pooler = start(max_size=1)
    with pooler.wire(TimeZone="Europe/Paris") as one, pooler.wire(TimeZone="Asia/Tokyo") as other:
        for client, zone in ((one, "Europe/Paris"), (other, "Asia/Tokyo")) * 2:
            client.send(w.parse("SELECT current_setting('TimeZone')"), w.bind(), w.execute(), w.SYNC)
            answers, _ = client.until_ready()
            assert [w.row(body) for kind, body in answers if kind == b"D"] == [[zone]]
            # The pooler's own SET commands are not reported to the client.
            assert [kind for kind, _ in answers] == [b"1", b"2", b"D", b"C"]


@pytest.mark.poolhouse_only
def test_a_bad_value_of_a_parameter_hurts_only_the_client_that_gave_it(start):
    pooler = start(max_size=1)
    with pooler.wire() as good:
        good.query("SELECT 1")
        with pytest.raises((w.ServerError, w.Closed)), pooler.wire(TimeZone="Nowhere/Atall") as bad:
            bad.query("SELECT 1")
        assert good.query("SELECT 1") == [["1"]]
    with pooler.connect() as other:
        assert other.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.poolhouse_only
def test_settings_in_options_apply(start):
    pooler = start(max_size=1)
    with pooler.connect(options="-c DateStyle=SQL,DMY -c TimeZone=Asia/Tokyo") as one, pooler.connect() as other:
        for _ in range(2):
            assert show(one, "TimeZone") == "Asia/Tokyo"
            assert show(other, "TimeZone") != "Asia/Tokyo"


@pytest.mark.poolhouse_only
def test_the_client_learns_the_servers_own_parameters_at_login(start, cluster):
    pooler = start(max_size=1)
    with pooler.connect() as connection, cluster.superuser() as direct:
        for name in ("server_version", "server_encoding", "integer_datetimes", "in_hot_standby", "DateStyle"):
            assert connection.info.parameter_status(name) == direct.info.parameter_status(name)
        assert connection.info.parameter_status("is_superuser") == "off"
        assert connection.info.parameter_status("session_authorization") == "app"
