"""Orders over the admin address need its token."""

import pytest

from support.pooler import Failed

pytestmark = pytest.mark.poolhouse_only

TOKEN = "0123456789abcdef0123456789abcdef"


def test_with_a_token_only_clients_that_show_it_may(start, tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    pooler = start(token_file=str(path))
    assert pooler.post("/api/resume")[0] == 401
    assert pooler.post("/api/resume", {"Authorization": f"Bearer {TOKEN[:-1]}0", "X-Poolhouse": "x"})[0] == 401
    assert pooler.post("/api/resume", {"Authorization": f"Bearer {TOKEN}"})[0] == 200
    assert pooler.get("/api/pools")[0] == 200, "looking needs none"
    assert TOKEN not in pooler.log()
    assert "without the right token" in pooler.log()


def test_a_token_can_be_changed_by_a_reload(start):
    pooler = start(token=TOKEN)
    other = TOKEN[::-1]
    pooler.rewrite(token=other)
    assert pooler.post("/api/reload", {"Authorization": f"Bearer {TOKEN}"})[0] == 200
    assert pooler.post("/api/resume", {"Authorization": f"Bearer {TOKEN}"})[0] == 401
    assert pooler.post("/api/resume", {"Authorization": f"Bearer {other}"})[0] == 200


TOKENS = [{"name": "grafana", "token": "view-" + TOKEN, "role": "view"}, {"name": "anna", "token": "anna-" + TOKEN, "role": "operate"}]


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def test_tokens_have_names_and_roles(start):
    pooler = start(admin_tokens=TOKENS, view_needs_token=True)
    anna, grafana = bearer("anna-" + TOKEN), bearer("view-" + TOKEN)
    assert pooler.post("/api/resume", anna)[0] == 200
    assert pooler.post("/api/resume", grafana)[0] == 403
    assert pooler.post("/api/resume")[0] == 401
    for path in ["/metrics", "/api/pools", "/"]:
        assert [pooler.get(path, headers=headers)[0] for headers in (anna, grafana, bearer("x"), {})] == [200, 200, 401, 401]
    assert pooler.get("/health")[0] == 200, "a probe has no token"
    assert 'token="anna" order="resume"' in pooler.log() and 'token="grafana"' in pooler.log()
    assert TOKEN not in pooler.log()
    told = pooler.ctl("show", "pools", environment={"POOLHOUSE_ADMIN_TOKEN": "view-" + TOKEN})
    assert told.returncode == 0, told.stderr
    assert pooler.ctl("resume", environment={"POOLHOUSE_ADMIN_TOKEN": "view-" + TOKEN}).returncode != 0


@pytest.mark.parametrize("tokens, word", [
    ([TOKENS[0], TOKENS[0]], "another [[admin_token]]"),
    ([{"name": "a", "token": TOKEN}], "no `role`"),
    ([{"name": "a", "role": "view"}], "no `token`"),
    ([{"name": "a", "role": "view", "token": "short"}], "fewer than"),
    ([], "no token to show"),
])
def test_tokens_that_make_no_sense_are_refused(start, tokens, word):
    pooler = start.unstarted()
    pooler.expected_status = 2
    with pytest.raises(Failed) as raised:
        pooler.start(admin_tokens=tokens, view_needs_token=True)
    assert word in raised.value.output


@pytest.mark.parametrize("headers", [
    {},
    {"Content-Type": "text/plain"},
    {"X-Poolhouse": "x", "Origin": "http://evil.example"},
    {"X-Poolhouse": "x", "Sec-Fetch-Site": "cross-site"},
    {"X-Poolhouse": "x", "Host": "evil.example"},
], ids=["a form", "a form of text", "a page", "a browser", "a name pointed here"])
def test_without_a_token_no_web_page_may(start, headers):
    pooler = start()
    assert pooler.post("/api/pause", headers)[0] == 403
    assert pooler.post("/api/resume")[0] == 200


@pytest.mark.parametrize("path", ["/", "/metrics", "/health", "/ready", "/api/pools", "/api/clients", "/api/servers", "/api/findings", "/api/history"])
def test_a_web_page_that_pointed_its_name_here_reads_nothing(start, path):
    pooler = start(names=["poolhouse.internal"])
    for headers in ({"Host": "evil.example:9930"}, {"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        status, text = pooler.get(path, headers=headers)
        assert status == 403 and "poolhouse_" not in text, headers
    for host in ("localhost", "127.0.0.1:9930", "[::1]:9930", "poolhouse.internal:9930"):
        assert pooler.get(path, headers={"Host": host})[0] == 200, host


def test_a_client_that_shows_the_token_may_look_by_any_name(start):
    pooler = start(token=TOKEN)
    named = {"Host": "poolhouse.internal"}
    assert pooler.get("/metrics", headers=named)[0] == 403
    assert pooler.get("/metrics", headers={**named, "Authorization": f"Bearer {TOKEN}"})[0] == 200


def test_orders_are_not_given_by_looking(start):
    pooler = start()
    assert pooler.get("/api/pause")[0] in (403, 405)
    assert pooler.post("/api/pools")[0] == 405


def test_a_short_token_is_refused(start):
    pooler = start.unstarted()
    pooler.expected_status = 2
    with pytest.raises(Failed) as failed:
        pooler.start(token="short")
    assert failed.value.status == 2 and "fewer than 16 characters" in failed.value.output
    assert '"short"' not in failed.value.output
