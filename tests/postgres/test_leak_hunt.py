"""Short runs of the leak hunter (tests/hunts/leaks.py): no client meets what another client has done to its session, in
whatever notation.
"""

import os

import pytest

from hunts import leaks

pytestmark = [pytest.mark.poolhouse_only, pytest.mark.timeout(300)]

SEED = os.environ.get("TEST_SEED", "1")


@pytest.fixture(scope="module")
def ground():
    """A cluster for the hunter alone, because its clients change the databases."""
    with leaks.make_cluster() as cluster:
        yield cluster


def hunt(ground, *arguments):
    chosen = leaks.arguments(["--seed", SEED, *(str(argument) for argument in arguments)])
    found = leaks.hunt(ground, chosen)
    if found.leak:
        history = "\n".join(f"  {turn}" for turn in found.turns)
        pytest.fail(f"{found.leak.what}\n{history}\n  again: {leaks.command(chosen, [turn.number for turn in found.turns])}")


def test_nothing_is_left_for_others_where_there_are_no_functions(ground):
    hunt(ground, "--database", "quiet", "--statements", 400)


def test_nothing_is_left_for_others_where_functions_change_sessions(ground):
    hunt(ground, "--database", "hidden", "--statements", 400)


def test_nothing_is_left_for_others_on_several_servers(ground):
    hunt(ground, "--servers", 3, "--workers", 2, "--statements", 400)


@pytest.mark.at_length
def test_nothing_is_left_for_others_in_session_mode(ground):
    hunt(ground, "--mode", "session", "--statements", 300)


@pytest.mark.at_length
def test_nothing_is_left_for_others_in_statement_mode(ground):
    hunt(ground, "--mode", "statement", "--statements", 300)


@pytest.mark.at_length
def test_nothing_is_left_for_others_with_reset_always(ground):
    hunt(ground, "--set", 'reset="always"', "--statements", 300)


@pytest.mark.at_length
def test_nothing_is_left_for_others_where_state_pins(ground):
    hunt(ground, "--set", 'on_session_state="pin"', "--statements", 300)


@pytest.mark.at_length
def test_nothing_is_left_for_others_where_functions_are_made_on_the_way(ground):
    hunt(ground, "--database", "quiet", "--with", "made,settings,locks", "--statements", 400)


@pytest.mark.at_length
def test_nothing_is_left_for_others_where_objects_call_functions_of_postgresql(ground):
    hunt(ground, "--database", "quiet", "--with", "objects", "--statements", 600)
