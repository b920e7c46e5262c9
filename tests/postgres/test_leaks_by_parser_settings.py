"""Settings that change for a moment how a text or a constant is read, or which settings are visible, do not mislead
Poolhouse.
"""

import pytest

from hunts.leaking import look, world
from hunts.leaking.fixtures import removed, share  # noqa: F401
from hunts.leaking.sharing import strictly
from support import postgres_wire as w

pytestmark = pytest.mark.poolhouse_only


@pytest.mark.parametrize("act", [
    "SELECT query_to_xml('SELECT set_config(''app.tenant'', ''evil'', false)', true, true, '')",
    "SELECT ts_stat('SELECT to_tsvector(set_config(''app.tenant'', ''evil'', false))')",
])
@pytest.mark.parametrize("on_session_state", ["replay", "pin", "reject"])
def test_what_a_text_does_that_a_function_is_given_reaches_no_other_client(share, on_session_state, act):
    share(on_session_state=on_session_state).nobody_meets(strictly(act))


def test_a_function_that_changes_the_encoding_for_its_transaction_hides_nothing(share, cluster, removed):
    world.make(cluster)
    removed("DROP FUNCTION public.made()")
    with cluster.superuser(world.QUIET) as db:
        db.execute("CREATE FUNCTION public.made() RETURNS int LANGUAGE plpgsql AS $$ BEGIN SET LOCAL client_encoding = sjis; RETURN 1; END $$")
    # In SJIS the backslash is the second half of a letter, so the text ends before the comma.
    evil = b"SELECT E'\x83\x5c', set_config($a$app.tenant$a$, $a$evil$a$, false) --'"

    def act(session):
        strictly("SELECT 1")(session)
        session.send(w.parse("SELECT public.made()"), w.bind(), w.execute(), w.message(b"P", b"\0" + evil + b"\0\0\0"), w.bind(), w.execute(), w.SYNC)
        assert len(look.rows(session.until_ready()[0])) == 2

    share().nobody_meets(act)


@pytest.mark.parametrize("name, value, back", [("DateStyle", "German, DMY", "ISO, MDY"), ("standard_conforming_strings", "off", "on")])
@pytest.mark.parametrize("application_name", ["", "another"])
def test_a_function_planned_while_pg_settings_was_updated_is_planned_anew(share, cluster, removed, name, value, back, application_name):
    world.make(cluster)
    removed("DROP FUNCTION public.made()")
    with cluster.superuser(world.QUIET) as db:
        db.execute(r"CREATE FUNCTION public.made() RETURNS text LANGUAGE plpgsql AS "
                   r"$$ DECLARE d date := '01/02/2020'; BEGIN RETURN to_char(d, 'MM') || 'a\\b'; END $$")
    shared = share(wait="8s")
    update = f"UPDATE pg_settings SET setting = '{{}}' WHERE name = '{name}'"
    with shared.session() as one:
        strictly(f"{update.format(value)}; SELECT public.made(); {update.format(back)}")(one)
        with shared.session(application_name=application_name) as other:
            assert strictly("SELECT public.made()")(other) == [(r"01a\\b",)]


def test_a_setting_that_is_hidden_from_the_current_role_reaches_no_other_client(share):
    shared = share(wait="8s")
    for act in ("BEGIN; SET dynamic_library_path = '/evil'; SET ROLE leaks_reader; COMMIT",
                "BEGIN; UPDATE pg_settings SET setting = '/evil' WHERE name = 'dynamic_library_path'; SET ROLE leaks_reader; COMMIT"):
        with shared.session(world.ADMIN) as one:
            strictly(act)(one)
        with shared.session(world.ADMIN) as other:
            assert strictly("SHOW dynamic_library_path")(other) == [("$libdir",)], act


@pytest.mark.parametrize("asked, act", [
    ({}, "SET plpgsql.variable_conflict = use_column"),
    ({}, "BEGIN; SELECT set_config('plpgsql.variable_conflict', 'use_column', true)"),
    ({"options": "-c plpgsql.variable_conflict=use_column"}, "SELECT 1"),
])
def test_a_function_compiled_by_the_settings_of_another_reaches_no_other_client(share, cluster, removed, asked, act):
    world.make(cluster)
    removed("DROP FUNCTION public.made()")
    with cluster.superuser(world.QUIET) as db:
        db.execute("CREATE FUNCTION public.made() RETURNS bigint LANGUAGE plpgsql AS $$ DECLARE id int := 5; "
                   "BEGIN RETURN (SELECT id FROM (VALUES (7)) AS v(id)); END $$")
    shared = share(wait="8s")
    with shared.session(world.ADMIN, **asked) as one:
        strictly(act)(one)
        assert strictly("SELECT public.made(); COMMIT")(one) == [("7",)]
    with shared.session(world.ADMIN) as other:
        with pytest.raises(w.ServerError, match="ambiguous"):
            strictly("SELECT public.made()")(other)
