"""Why a test of pymongo fails through Poolhouse though it passes directly, in a line each."""

import re

LOST = "the test has MongoDB close the connection of a command, and expects that the driver's ends: Poolhouse keeps it and answers with code 6"
STATE = "the test expects that a driver clears its pool when MongoDB steps down or shuts down: Poolhouse tells of that as a mongos does"
OWN = "the test has MongoDB fail `hello`, logins or commands of an application that it names: Poolhouse answers the first two, and shares its connections"
TOKEN = "the test expects the `recoveryToken` of a mongos: a replica set gives none, and Poolhouse itself finds the primary that knows of the commit"

# Tests by the file and their names; and the ways through Poolhouse, if not all.
REASONS = (
    (r"retryable_(reads|writes): TestPoolPausedError\.test_pool_paused_error_is_retryable", LOST, None),
    (r".*: TestUnifiedEstimatedDocumentCount\.test_(EstimatedDocumentCount_fails_on_(first|second)_attempt|\w+_errors_correctly--socket_error)", LOST, None),
    (r"transactions: TestTransactionsConvenientAPI\.test_commit_not_retried_after_timeout", LOST, None),
    (r"(sessions_unified|unified_format): \w+\.test_Dirty_.*", LOST, None),
    (r"unified_format: \w+\.test_isClientError_considers_network_errors", LOST, None),
    (r"run_command: \w+\.test_does_not_retry_retryable_errors_on_given_command", LOST, None),
    (r"command_logging: \w+\.test_network_error_in_response_to_(createUser|updateUser)_is_not_redacted", LOST, None),
    (r"monitoring: TestCommandMonitoring\.test_bulk_write_command_network_error", LOST, None),
    (r"monitoring: TestCommandMonitoring\.test_bulk_write_command_error", STATE, None),
    (r"sdam_monitoring_spec: \w+\.test_network_error_publishes_events", LOST, None),
    (r"sdam_monitoring_spec: \w+\.test_shutdown_error_publishes_events", STATE, None),
    (r"discovery_and_monitoring: TestUnified(Find|Insert)Shutdown\w+\..*", STATE, None),
    (r"discovery_and_monitoring: TestUnified(Find|Insert)Network\w+\..*", OWN, None),
    (r"discovery_and_monitoring: TestUnified(Hello\w+|CancelServerCheck|LoggingSharded|PoolClearedError)\..*", OWN, None),
    (r"discovery_and_monitoring: TestPoolManagement\.test_pool_unpause", OWN, None),
    (r"command_logging: \w+\.test_network_error_in_response_to_(authenticate|saslStart|saslContinue)_is_not_redacted", OWN, None),
    (r"transactions_unified: TestUnified(Pin)?Mongos(RecoveryToken|PinAuto|RecoveryTokenErrorLabels)?\..*", TOKEN, ("replica-set", "load-balanced")),
    (r"unified_format: TestUnifiedTestFormatValidPassPocTransactionsMongosPinAuto\..*", TOKEN, ("replica-set", "load-balanced")),
    (r"load_balancer: TestLoadBalancerSdamErrorHandling\.test_errors_during_the_initial_connection_hello_are_ignored", OWN, None),
    (r"load_balancer: TestLoadBalancerCursors\.test_pinned_connections_are_returned_after_an?_network_error_during_.*", LOST, None),
    (r"load_balancer: TestLoadBalancerTransactions\.test_pinned_connection_is_released_after_a_transient_network_\w+_error", LOST, None),
    (r"load_balancer: TestLoadBalancer(EventMonitoring\.test_poolClearedEvent|SdamErrorHandling\.test_stale_errors).*", LOST, None),
)


def why(way, file, test):
    name = f"{file}: {test}"
    return next((reason for pattern, reason, ways in REASONS if way in (ways or [way]) and re.fullmatch(pattern, name)), None)
