"""Clients that change their sessions at random see what they would see without a pooler. tests/hunts/adversary.py runs
longer.
"""

import os

import pytest

from hunts import adversary
from hunts.adversarial.comparison import Difference

# The clients of one seed send the same each time, though not at the same moments.
SEED = os.environ.get("TEST_SEED", "1")


def play(*arguments):
    chosen = adversary.arguments(["--seed", SEED, *(str(argument) for argument in arguments)])
    try:
        adversary.run(chosen)
    except Difference as difference:
        pytest.fail(f"{difference}\n  again: {adversary.replay_command(chosen)}")


@pytest.mark.at_length
def test_postgresql_beside_itself_shows_no_difference():
    """If this failed, differences would prove nothing about the pooler."""
    play("--subject", "direct", "--statements", 1500, "--clients", 20)


@pytest.mark.poolhouse_only
def test_a_hundred_clients_see_nothing_of_each_other():
    play("--statements", 3000, "--clients", 100, "--pinners", 0)


@pytest.mark.poolhouse_only
def test_nor_do_they_see_anything_of_those_that_keep_a_server_of_their_own():
    play("--statements", 2500, "--clients", 60, "--pinners", 2)


@pytest.mark.at_length
@pytest.mark.poolhouse_only
def test_in_session_mode_everything_is_as_without_a_pooler():
    play("--mode", "session", "--statements", 2000, "--clients", 12, "--servers", 12, "--pinners", 12)
