"""The error of a login that is refused."""

import pytest

from support import postgres_wire as w
from support.postgres_cluster import PASSWORDS


def refusal(pooler, database):
    with pooler.open() as client, pytest.raises(w.ServerError) as raised:
        client.login("app", PASSWORDS["app"], database)
    return raised.value
