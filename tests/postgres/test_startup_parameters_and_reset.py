"""Parameters of a client's start-up message: RESET returns to them, and they are interpreted as PostgreSQL does."""

import pytest

from support import postgres_wire as w


@pytest.mark.poolhouse_only
@pytest.mark.parametrize("mode", ["transaction", "session"])
@pytest.mark.parametrize("reset", ["RESET application_name", "SET application_name TO DEFAULT", "RESET ALL", "DISCARD ALL"])
def test_reset_goes_back_to_what_the_client_asked_for_at_connect(start, mode, reset):
    pooler = start(mode=mode, max_size=2)
    with pooler.connect(application_name="of the start") as connection:
        connection.execute("SET application_name = 'changed'")
        connection.execute(reset)
        assert connection.execute("SHOW application_name").fetchone() == ("of the start",)
        assert connection.info.parameter_status("application_name") == "of the start"


@pytest.mark.poolhouse_only
def test_half_a_datestyle_is_completed_by_the_servers_default_and_not_by_another_clients(start):
    pooler = start(max_size=1)
    with pooler.wire(DateStyle="Postgres, MDY") as other:
        other.query("SELECT 1")
        with pooler.wire(DateStyle="dmy") as client:
            assert client.query("SHOW DateStyle") == [["ISO, DMY"]]
            assert client.parameters["DateStyle"] == "ISO, DMY"


@pytest.mark.parametrize("reset", ["DISCARD ALL", "RESET work_mem /* \\ */ ; SELECT 1/0"])
def test_a_reset_that_failed_does_not_make_set_transaction_too_late(start, reset):
    pooler = start(max_size=1)
    with pooler.wire(options="-c work_mem=5MB") as client:
        client.query("BEGIN")
        with pytest.raises(w.ServerError):
            client.query(reset)
        client.query("COMMIT AND CHAIN")
        client.query("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        assert client.query("SHOW transaction_isolation") == [["serializable"]]
        client.query("COMMIT")
        assert client.query("SHOW work_mem") == [["5MB"]]


def test_an_error_before_a_reset_in_a_pipeline_is_not_the_resets(start):
    pooler = start(max_size=1)
    with pooler.wire(options="-c work_mem=5MB") as client:
        client.query("SET work_mem = '6MB'")
        client.send(w.query("SELECT 1/0"), w.query("RESET work_mem /* \\ */"))
        with pytest.raises(w.ServerError, match="division"):
            client.rows()
        client.rows()
        assert client.query("SHOW work_mem") == [["5MB"]]


@pytest.mark.parametrize("further", [[], ["BEGIN"]], ids=["alone", "with a transaction"])
def test_what_fails_behind_discard_all_in_its_pipeline_does_not_undo_it(start, further):
    """PostgreSQL commits DISCARD ALL at once, so the client is back at its start."""
    pooler = start(max_size=1)
    with pooler.wire(application_name="of the start", options="-c work_mem=5MB") as client:
        client.query("SET work_mem = '6MB'")
        for sql in ["DISCARD ALL", *further, "SELECT 1/0"]:
            client.send(w.parse(sql), w.bind(), w.execute())
        client.send(w.SYNC)
        with pytest.raises(w.ServerError, match="division"):
            client.rows()
        client.query("ROLLBACK")
        assert client.query("SHOW work_mem") == [["5MB"]]
        assert client.query("SHOW application_name") == [["of the start"]]


@pytest.mark.parametrize("reset", ["auto", "always"])
@pytest.mark.parametrize("max_size", [1, 5])
def test_a_client_that_asks_for_temp_buffers_is_served_after_the_temporary_table_of_another(start, reset, max_size):
    """Such a server refuses temp_buffers from then on; another server accepts it."""
    pooler = start(max_size=max_size, reset=reset)
    others = [pooler.wire() for _ in range(max_size)]
    early = pooler.wire(options="-c temp_buffers=16MB")
    for other in others:
        other.query("BEGIN; CREATE TEMP TABLE t_mine (a int) ON COMMIT DROP; INSERT INTO t_mine VALUES (1)")
    for other in others:
        other.query("COMMIT")
    for size in ("16MB", "32MB"):
        others[0].query("BEGIN; CREATE TEMP TABLE t_mine (a int) ON COMMIT DROP; INSERT INTO t_mine VALUES (1); COMMIT")
        with pooler.wire(options=f"-c temp_buffers={size}") as client:
            assert client.query("SHOW temp_buffers") == [[size]]
        others[0].query("BEGIN; CREATE TEMP TABLE t_mine (a int) ON COMMIT DROP; INSERT INTO t_mine VALUES (1); COMMIT")
        assert early.query("SHOW temp_buffers") == [["16MB"]]
    for session in (*others, early):
        session.close()
