"""The order in which several test processes take the test files: the longest first, so that no process has a long one
left at the end. It knows nothing of what a file tests.
"""

# Approximate seconds of each file. Only the order depends on them.
SECONDS = {
    "doctor_databases": 125, "scenarios": 118, "doctor": 110, "sweep": 95, "redis_blocked_server": 80,
    "doctor_without_poolhouse": 101, "mongodb_cases": 100, "failed_cleaning": 60, "mongodb_suite": 50,
    "serverless_clients": 65, "leaks_by_database_objects": 64, "leaks": 63, "plan": 25, "leak_hunt": 60, "redis_sentinel": 58,
    "tuning": 51, "admin_many_pools": 50, "client_programs": 47, "dashboard": 46, "adversary": 30, "doctor_hikaricp": 40,
    "bench_postgres": 39, "mongodb_elections": 36, "rest_memory": 35, "bench_verb": 32, "leaks_of_sessions": 31,
    "broken_pipelines": 31, "authentication": 30, "mongodb_read_preference": 26, "shared_budget": 26, "timeouts": 25,
    "cancel": 25, "mongodb_serverless": 25, "redis_differential": 25, "bench_redis": 22, "mongodb_isolation": 21,
    "stale_plans": 20, "mongodb_mongos": 20, "server_faults": 20, "process_faults": 20, "slow_peers": 20,
    "redis_faults": 19, "mongodb_cleanup_tasks": 19, "rest_http2_events": 19, "network_faults": 18,
    "dead_servers": 17, "report_page": 15, "rest": 15, "mongodb": 15, "redis_sharing": 15, "tls_load": 15,
    "nonce_echo": 15, "mongodb_several_poolers": 15, "cancel_exactness": 15, "upgrade": 14, "unnamed_statement": 14,
    "session_state": 13, "malformed_input": 13, "leaks_by_notation": 13, "psql_and_pgbench": 13, "mongodb_replica_set": 12,
    "failed_copy": 12, "redis": 11, "tls_hostile": 11, "rest_http2": 10, "deallocate": 9, "mongodb_transactions": 9,
    "leaks_by_transient_objects": 20, "redis_disconnects": 18, "database_defaults": 18, "large_catalogues": 12, "dumps": 8,
    "redis_subscriptions": 9, "cached_plans": 9, "sweep_of_commands": 9, "top": 7, "dashboard_unusual_answers": 7,
}
# Seconds of a test whose file is not listed above.
SECONDS_OF_A_TEST = 0.2


def longest_first(items):
    """The items with the files in that order; those of one file stay together."""
    files = {}
    for item in items:
        files.setdefault(item.path.stem.removeprefix("test_"), []).append(item)
    seconds = lambda name: SECONDS.get(name, SECONDS_OF_A_TEST * len(files[name]))
    return [item for name in sorted(files, key=seconds, reverse=True) for item in files[name]]
