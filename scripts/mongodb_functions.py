"""Case 3 with MongoDB: functions that are frozen between two calls, and a flood of functions, neither of which ever says goodbye.

    functions (tests/support/serverless_function.py), or a load -> [Poolhouse] -> SlowRelay -> mongo-java-server
"""

import contextlib
import json
import subprocess
import time

import telemetry_chain
from telemetry_chain import DATABASE, COLLECTION, Upstream, clients_of, errors, made

from support import pooler
from support.serverless_function import Function
from support.mongodb_server import MongoPoolhouse
from slow_relay import SlowRelay

# As published, in seconds: the server's idle limit, when a frozen function is called again, an idle limit that is longer than the platform's
# 300 s, and the time-outs of the driver.
LIMIT, CALLED_AGAIN, LONGER, TIMEOUT = 60, 95, 310, 20
# pymongo asks a server no more often.
LEAST_HEARTBEAT_MS = 500
# A function of the flood: it asks three times, in 400 ms, and keeps its connection. Variables are drawn for each.
SCENARIO = """[scenario]
name = "a flood of functions"
[target]
url = "{url}"
commands = '''
\\set id random(1, 1000000000000000)
{{"find": "{collection}", "filter": {{"_id": :id}}, "limit": 1}}
\\sleep 200 ms
{{"find": "{collection}", "filter": {{"_id": :id}}, "limit": 1}}
\\sleep 200 ms
{{"insert": "{collection}", "documents": [{{"_id": :id}}]}}
'''
[load]
rate = {rate}
duration = "{seconds}s"
[pool]
reuse = false
goodbye = false
"""


def serverless(directory, server, sizes):
    """Both halves of the case."""
    return {"frozen": frozen(directory, server, sizes), "flood": flood(directory, server, sizes)}


@contextlib.contextmanager
def way(directory, server, listener=None, max_size=20, **network):
    """The relay before an empty database, the Poolhouse before the relay if there are settings of its listener, and the URL to connect to."""
    with server.connect() as client:
        client.drop_database(DATABASE)
    with contextlib.ExitStack() as stack:
        relay = stack.enter_context(SlowRelay(server.port, **network))
        poolhouse, port = None, relay.port
        if listener is not None:
            poolhouse = MongoPoolhouse(made(directory, "poolhouse"), Upstream(port))
            stack.callback(poolhouse.stop)
            poolhouse.start_listening(listener, max_size=max_size)
            poolhouse.settle()
            port = poolhouse.port
        yield relay, poolhouse, f"mongodb://127.0.0.1:{port}/{DATABASE}"


def documents(server):
    with server.connect() as client:
        return client[DATABASE][COLLECTION].count_documents({})


# -- frozen between two calls


def frozen(directory, server, sizes):
    """Functions are called, frozen for longer than an idle limit, and called again when they thaw, and once more."""
    compressed = lambda seconds: f"{round(1000 * seconds / sizes.freeze_compression)}ms"
    forms = {
        "forgets": (None, {"forget": LIMIT / sizes.freeze_compression}),
        "direct": (None, {}),
        "limit 60": ({"client_idle_time": compressed(LIMIT)}, {}),
        "limit 310": ({"client_idle_time": compressed(LONGER)}, {}),
    }
    timeout = round(1000 * TIMEOUT / sizes.freeze_compression)
    heartbeat = max(LEAST_HEARTBEAT_MS, timeout // 2)
    options = f"socketTimeoutMS={timeout}&connectTimeoutMS={timeout}&heartbeatFrequencyMS={heartbeat}"
    rows = {}
    for name, (listener, network) in forms.items():
        with way(directory, server, listener, **network) as (relay, poolhouse, url), contextlib.ExitStack() as stack:
            functions = [stack.enter_context(Function(f"{url}?{options}", DATABASE, COLLECTION)) for _ in range(sizes.functions)]
            first = call(functions, 0)
            accepted = came(relay, poolhouse)
            with contextlib.ExitStack() as ice:
                for function in functions:
                    ice.enter_context(function.frozen())
                time.sleep(CALLED_AGAIN / sizes.freeze_compression)
                held = {"database": relay.figures()["open"], "poolhouse": clients_of(poolhouse) if poolhouse else None}
            again = call(functions, 1)
            rows[name] = {"first": told(first), "thawed": told(again), "next": told(call(functions, 2)), "held": held,
                          "opened": came(relay, poolhouse) - accepted}
        calls = [rows[name][when] for when in ("first", "thawed", "next")]
        rows[name].update(acknowledged=sum(one["asked"] - one["errors"] for one in calls), documents=documents(server))
    return {"functions": sizes.functions, "compression": sizes.freeze_compression, "timeout_ms": timeout, "forms": rows}


def call(functions, number):
    """Calls all of them at once, each for the time with this number."""
    for place, function in enumerate(functions):
        function.tell(1000 * number + place)
    return [function.hear() for function in functions]


def told(answers):
    """How calls went."""
    failed = [answer["error"] for answer in answers if answer["error"]]
    return {"asked": len(answers), "errors": len(failed), "max": max(answer["ms"] for answer in answers),
            "why": sorted({error.split("(", 1)[0] for error in failed})}


def came(relay, poolhouse):
    """Connections that functions have made so far: to Poolhouse, or where there is none to the database."""
    return round(poolhouse.metric("poolhouse_clients_accepted_total")) if poolhouse else relay.figures()["opened"]


# -- a flood


def flood(directory, server, sizes):
    """More functions arrive than there may be connections."""
    limit, soft = sizes.flood_limit, sizes.flood_limit * 3 // 4
    forms = {
        "direct": (None, {"limit": limit}),
        "one limit": ({"soft_limit": limit, "hard_limit": limit}, {}),
        "two limits": ({"soft_limit": soft, "hard_limit": limit, "evict_min_idle": sizes.flood_min_idle}, {}),
    }
    rows = {}
    for name, (listener, network) in forms.items():
        with way(directory, server, listener, **network) as (relay, poolhouse, url):
            relay.begin()
            result = arrive(directory, url, sizes)
            rows[name] = {"asked": result["requests"] + errors(result), "acknowledged": result["requests"], "errors": errors(result),
                          "why": result["errors"], "failing_from": failing_from(result), "p99": (result["response_ms"] or {}).get("p99"),
                          "most": relay.figures()["most"]}
            if poolhouse:
                rows[name]["evicted"] = round(poolhouse.metric("poolhouse_client_evictions_total"))
                rows[name]["rejected"] = round(poolhouse.metric("poolhouse_client_rejections_total"))
        rows[name]["documents"] = documents(server)
    return {"limit": limit, "soft": soft, "rate": sizes.flood_rate, "seconds": sizes.flood_seconds, "forms": rows}


def arrive(directory, url, sizes):
    """Our own load generator: what came of the functions."""
    file = directory / "flood.toml"
    file.write_text(SCENARIO.format(url=url, collection=COLLECTION, rate=sizes.flood_rate, seconds=sizes.flood_seconds))
    command = [pooler.BINARY, "bench", file, "--json", "-", "--seed", str(next(telemetry_chain.SEEDS))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def failing_from(result):
    """Seconds until the first function failed."""
    return next((second["at_s"] for second in result["series"] if second["errors"]), None)
