"""DISCARD ALL before an error in its pipeline is not undone: the parameters that the client is told are those that
hold."""

import pytest

from support import postgres_wire as w


@pytest.mark.parametrize("mode", ["transaction", "session"])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("flush", ["none", "between", "and the answer"])
@pytest.mark.parametrize("what", ["DISCARD ALL", "RESET ALL"])
def test_a_client_hears_of_its_start_up_parameters_though_an_error_follows(start, what, flush, first, mode):
    pooler = start(max_size=1, mode=mode)
    with pooler.wire(application_name="mine", options="-c app.tenant=its") as client:
        if not first:
            client.query("SET application_name = 'other'")
        behind = [w.parse("SELECT 1/0"), w.bind(), w.execute()]
        client.send(w.parse(what), w.bind(), w.execute(), *([w.FLUSH] if flush != "none" else []))
        if flush == "and the answer":
            client.expect(b"1"), client.expect(b"2"), client.expect(b"C")
        client.send(*behind, w.SYNC)
        client.until_ready()
        # RESET ALL is undone with the rest, DISCARD ALL is not.
        expected = "mine" if first or what == "DISCARD ALL" else "other"
        assert client.parameters["application_name"] == expected
        assert client.query("SHOW application_name") == [[expected]]
