"""`ignore_startup_parameters`: what is listed is never an error, and never applied."""

import pytest

from support import postgres_wire as w
from support.postgres_cluster import PASSWORDS

pytestmark = pytest.mark.poolhouse_only


@pytest.mark.parametrize("parameters", [
    {"foo": "bar"}, {"extra_float_digits": "99"}, {"extra_float_digits": "nonsense"}, {"options": "--cluster=xyz"},
    {"options": "-c foo=1 -c bar=2"}, {"options": "-c extra_float_digits=99"}, {"search_path": "nonsense"},
], ids=str)
def test_what_is_listed_is_no_error(serve_ini, parameters):
    pooler = serve_ini(ignore_startup_parameters="extra_float_digits, foo,options, search_path")
    with pooler.open() as client:
        client.login("app", PASSWORDS["app"], "bench", **parameters)
        assert client.query("SELECT 1") == [["1"]]


def test_what_is_listed_has_no_effect(serve_ini):
    pooler = serve_ini(ignore_startup_parameters="extra_float_digits,search_path,options")
    with pooler.open() as client:
        client.login("app", PASSWORDS["app"], "bench", search_path="nowhere", extra_float_digits="0",
                     options="-c search_path=there -c work_mem=1MB -c TimeZone=Asia/Tokyo")
        names = ("search_path", "extra_float_digits", "work_mem", "TimeZone")
        shown = [client.query(f"SHOW {name}")[0][0] for name in names]
        assert shown == ['"$user", public', "1", "4MB", "Asia/Tokyo"]


def test_what_is_not_listed_is_an_error(serve_ini):
    pooler = serve_ini(ignore_startup_parameters="extra_float_digits")
    with pooler.open() as client, pytest.raises(w.ServerError):
        client.login("app", PASSWORDS["app"], "bench", foo="bar")
