"""Why a test of PgBouncer's fails with Poolhouse in its place, in a line each."""

import re

DROPPED = "the test asks for what PgBouncer 1.26 has dropped, too (`-R`, SUSPEND)"
OTHER_DRIVER = "the test fails with PgBouncer 1.26.1, too, with this version of psycopg or of the configuration's rules"
IDS = "the test expects that a connection's id is one more than that of the one before: ours are unique, and not in order"
STATEMENTS = "a prepared statement of an unknown name, or of a name that is in use, is an error as in PostgreSQL, and the client stays; PgBouncer closes the connection"
NO_ZERO = "`max_prepared_statements = 0` switches nothing off here, and another value replaces the servers"
NO_COUNTS = "statements are not counted by database"
LOOKUP_COUNTS = "a server that is asked for its parameters at a login counts as assigned"
SECRECY = "a user who does not exist gets the answer to a wrong password, so that names cannot be guessed; PgBouncer says `no such user`"
LOG_OF_SETTINGS = "the test looks for lines about PgBouncer's own cache of settings"
AT_ONCE = "clients without a transaction are sent away when the shutdown begins; PgBouncer waits until they ask for something"
NO_WAIT = "`query_timeout` does not count the wait for a server, which `query_wait_timeout` limits"
WORDS_OF_DATABASE = "a replication client that the database refuses is told the database's words; PgBouncer says `login failed`"
APART = "replication connections are counted apart: no other connection has to go for them"
OLD_TLS = "the test configures TLS 1.0, which Poolhouse does not have"
REFUSED = "an `auth_dbname` that cannot work is refused when it is set or read; PgBouncer refuses the logins"
CONSOLE = "clients of the console take no places of the database and the user"
CONSOLE_USERS = "users of the console are listed or configured: none is looked up"
DISABLED = "DISABLE keeps clients out of a database, and not the lookups of others' users in it"
TOLD = "a certificate that is not accepted is told to the client at once; PgBouncer has it wait"
TWO_AT_ONCE = "two servers are connected at the same time, and each tries the host that does not exist"
LOGGED_AFTER = "the line about a refused client can come a moment after its answer, where PgBouncer writes it before: on a busy machine the test looks between them"
ASKED_ALIKE = "a user who is not found is asked as those are who were: by SCRAM, whose error has other words"
OF_POSTGRES = "users of `*` without an `auth_dbname` are looked up in the database `postgres`, not in the one that the client names"

# Tests by their files and names, and the reason.
REASONS = (
    (r"test_operations::test_(online_restart|scram_takeover|suspend_resume)", DROPPED),
    (r"test_admin::test_(socket|server|client)_id", IDS),
    (r"test_admin::test_show_stats", LOOKUP_COUNTS),
    (r"test_prepared::test_(deallocate_all|discard_all|describe_non_existent_prepared_statement|prepared_disallow_name_reuse)", STATEMENTS),
    (r"test_prepared::test_evict_statement_cache", NO_ZERO),
    (r"test_prepared::test_prepared_statement_counters", NO_COUNTS),
    (r"test_prepared::test_(prepared_statement_pipeline_error_delayed_sync|statement_name_longer_than_pkt_buf)", OTHER_DRIVER),
    (r"test_auth::test_auth_dbname_usage_global_setting", OTHER_DRIVER),
    (r"test_auth::test_(auth_dbname_(global_invalid|usage)|unconfigured_auth_database_with_auto_database)", REFUSED),
    (r"test_limits::test_max_\w+_client_connections_(global_)?negative\[pgbouncer-\w+\]", CONSOLE),
    (r"test_auth::test_auth_dbname_works_fine", CONSOLE_USERS),
    (r"test_auth::test_auth_dbname_disabled", DISABLED),
    (r"test_no_database::test_no_database_auth_user", ASKED_ALIKE),
    (r"test_no_database::test_no_database_auto_database_auth_user", OF_POSTGRES),
    (r"test_load_balance_hosts::test_load_balance_hosts_disable_bad_first", TWO_AT_ONCE),
    (r"test_ssl::test_server_ssl_verify", TOLD),
    (r"test_auth::test_auth_user|test_no_user::test_no_user_auth_user", SECRECY),
    (r"test_no_user::test_no_user_(password|md5|scram)\w*", LOGGED_AFTER),
    (r"test_misc::test_equivalent_startup_param", LOG_OF_SETTINGS),
    (r"test_misc::test_(repeated_sigint|newly_paused_client_during_wait_for_servers_shutdown|already_paused_client_during_wait_for_servers_shutdown)", AT_ONCE),
    (r"test_replication::test_(logical_rep|physcal_rep)_unprivileged", WORDS_OF_DATABASE),
    (r"test_replication::test_replication_pool_size_mixed_clients", APART),
    (r"test_ssl::test_servers_disconnect_when_changing_tls_config", OLD_TLS),
    (r"test_timeouts::test_server_connect_timeout_establish", NO_WAIT),
)


def why(test):
    return next((reason for pattern, reason in REASONS if re.fullmatch(pattern, test)), None)
