"""Clients that change their sessions at random see what they would see without a pooler. The long run of it is tests/adversary.py."""

import pytest

import adversary
from adversarial.comparison import Difference

# What is known to differ, and is to leave this list as it is put right:
# startup: RESET and half a DateStyle (tests/test_startup_parameters_and_reset.py); unnamed: a Bind after a Parse that failed;
# prepared: DEALLOCATE of a protocol-level statement by the extended protocol; authorization: SET ROLE after SET SESSION
# AUTHORIZATION; sequences: lastval after nextval.
NOT_READY = "startup,unnamed,prepared,authorization,sequences"


def play(*arguments):
    chosen = adversary.arguments([str(argument) for argument in arguments])
    try:
        adversary.run(chosen)
    except Difference as difference:
        pytest.fail(f"{difference}\n  again: {adversary.replay_command(chosen)}")


def test_postgresql_beside_itself_shows_no_difference():
    """Otherwise a difference would say nothing about the pooler."""
    play("--subject", "direct", "--statements", 3000, "--clients", 20)


@pytest.mark.poolhouse_only
def test_a_hundred_clients_see_nothing_of_each_other():
    play("--statements", 6000, "--clients", 100, "--pinners", 2, "--without", NOT_READY)


@pytest.mark.poolhouse_only
def test_in_session_mode_everything_is_as_without_a_pooler():
    """But for RESET, which forgets what was asked for at connect: tests/test_startup_parameters_and_reset.py."""
    play("--mode", "session", "--statements", 3000, "--clients", 12, "--servers", 12, "--pinners", 12, "--without", "startup")
