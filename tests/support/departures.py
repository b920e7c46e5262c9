"""The ways in which a client of PostgreSQL leaves. A test with the fixture `leave` runs once for each."""

import pytest

from support import postgres_wire as w


def leave_politely(client):
    client.send(w.TERMINATE)
    client.close()


DEPARTURES = {"reset": w.Wire.vanish, "closed": w.Wire.close, "terminated": leave_politely}


@pytest.fixture(params=DEPARTURES, ids=list(DEPARTURES))
def leave(request):
    return DEPARTURES[request.param]
