"""Session state that no SQL resets, here the seed of random numbers. A server with such state is closed, however the
function that sets it is named, reached or spelt.
"""

import pytest

from hunts.leaking import look, world
from hunts.leaking.fixtures import removed, share  # noqa: F401
from hunts.leaking.sharing import strictly

pytestmark = pytest.mark.poolhouse_only


def seeding(signature, result="int"):
    return f"CREATE FUNCTION {signature} RETURNS {result} LANGUAGE sql AS 'SELECT setseed(0.25); SELECT 1'"


HARMLESS = "; ".join(f"CREATE FUNCTION public.harmless_{n}() RETURNS int LANGUAGE sql AS 'SELECT {n}'" for n in range(17))
LONGEST = "n" * 63
# How a function is called that seeds random numbers -> what is made for it, and what a client does.
REACHED = {
    "a body that is stored as an expression": (
        "CREATE FUNCTION public.made() RETURNS void BEGIN ATOMIC SELECT setseed(0.25); END", ["SELECT public.made()"]),
    "a procedure with such a body": (
        "CREATE PROCEDURE public.made() BEGIN ATOMIC SELECT setseed(0.25); END", ["CALL public.made()"]),
    "a function called by such a body": (
        f"{seeding('public.made()')}; CREATE FUNCTION public.made_too() RETURNS int BEGIN ATOMIC SELECT public.made(); END", ["SELECT public.made_too()"]),
    "the default of an argument": (
        "CREATE FUNCTION public.made(a text DEFAULT setseed(0.25)::text) RETURNS text LANGUAGE sql AS 'SELECT $1'", ["SELECT public.made()"]),
    "an aggregate": (
        "CREATE FUNCTION public.made(float8, float8) RETURNS float8 LANGUAGE sql AS 'SELECT setseed(0.25); SELECT 1.0::float8';"
        "CREATE AGGREGATE public.made_too(float8) (SFUNC = public.made, STYPE = float8)", ["SELECT public.made_too(1.0)"]),
    "the name of a harmless function of PostgreSQL's": (seeding("public.round(text)"), ["SELECT round('x'::text)"]),
    "that name in another function": (
        f"{seeding('public.round(text)')}; CREATE FUNCTION public.made() RETURNS int LANGUAGE sql AS $$ SELECT round('x'::text) $$", ["SELECT made()"]),
    "the name of a word of PL/pgSQL": (
        f"{seeding('public.query()')}; CREATE FUNCTION public.made() RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM query(); RETURN 1; END $$",
        ["SELECT made()"]),
    "the name of a word of SQL": (seeding("public.set(int)"), ["SELECT CASE WHEN true THEN set(1) END"]),
    "one of many calls": (
        f"{seeding('public.made()')}; {HARMLESS}", ["SELECT " + ", ".join(f"harmless_{n}()" for n in range(17)) + ", made()"]),
    "a name in another encoding": (seeding("public.ä()"), ["SET client_encoding = latin1", "SELECT public.ä()".encode("latin1")]),
    "a name that is cut off": (seeding(f"public.{LONGEST}()"), [f"SELECT public.{LONGEST}nn()"]),
    "a name with a quote in it": (seeding('public."a""b"()'), ['SELECT "a""b"()']),
    "a text too long to be read": (seeding("public.made()"), [f"SELECT 1 /* {'x' * 70_000} */, made()"]),
    "code within code": (seeding("public.made()"), ["DO $a$ BEGIN DO $b$ BEGIN PERFORM made(); END $b$; END $a$"]),
    "a temporary function": ("", [seeding("pg_temp.made()"), "SELECT pg_temp.made()", "DROP FUNCTION pg_temp.made()"]),
    "a temporary operator": (
        "", ["CREATE FUNCTION pg_temp.made(int) RETURNS int LANGUAGE sql AS 'SELECT setseed(0.25); SELECT 1'",
             "CREATE OPERATOR pg_temp.@! (RIGHTARG = int, FUNCTION = pg_temp.made)", "SELECT OPERATOR(pg_temp.@!) 1",
             "DROP FUNCTION pg_temp.made(int) CASCADE"]),
    "code with escapes": ("", [r"DO E'BEGIN PERFORM set\x73eed(0.25); END'"]),
    "code with other escapes": ("", [r"DO U&'BEGIN PERFORM set\0073eed(0.25); END'"]),
    "code that goes on behind a line break": ("", ["DO 'BEGIN PERFORM set'\n'seed(0.25); END'"]),
    "code with doubled quotes": ("", ["DO 'BEGIN PERFORM ''x'', setseed(0.25), ''y''; END'"]),
    "code within code that names it": ("", ["DO $a$ BEGIN DO $b$ BEGIN PERFORM setseed(0.25); END $b$; END $a$"]),
    "a text that is read otherwise": ("", ["SET standard_conforming_strings = off", r"SELECT 'a\'', setseed(0.25), ' '"]),
    "code that is read otherwise": ("", ["SET standard_conforming_strings = off", r"DO 'BEGIN PERFORM set\163eed(0.25); END'"]),
}


@pytest.mark.parametrize("way", REACHED)
def test_a_seed_reaches_no_other_client_however_it_is_planted(share, cluster, removed, way):
    make, acts = REACHED[way]
    world.make(cluster)
    with cluster.superuser(world.QUIET) as db:
        before = {oid for (oid,) in db.execute("SELECT oid FROM pg_proc").fetchall()}
        if make:
            db.execute(make)
        made = db.execute("SELECT format('DROP %%s %%s CASCADE', CASE prokind WHEN 'p' THEN 'PROCEDURE' WHEN 'a' THEN 'AGGREGATE' ELSE 'FUNCTION' END, "
                          "oid::regprocedure) FROM pg_proc WHERE oid <> ALL (%s) ORDER BY prokind", [list(before)]).fetchall()
    for (drop,) in made:
        removed(drop)
    shared = share(wait="8s")
    with shared.direct() as fresh:
        known = look.randoms(fresh)
    with shared.session() as one:
        for act in acts:
            strictly(act)(one)
    with shared.session() as other:
        assert strictly("SELECT random()::text")(other)[0][0] not in known


def test_a_function_that_inserts_or_updates_is_no_reason_for_cleaning(share, cluster, removed):
    world.make(cluster)
    removed("DROP FUNCTION public.made()")
    with cluster.superuser(world.QUIET) as db:
        db.execute("CREATE FUNCTION public.made() RETURNS void LANGUAGE plpgsql AS $$ BEGIN INSERT INTO orders (id) VALUES (1) ON CONFLICT DO NOTHING; END $$")
    shared = share()
    with shared.session() as one:
        strictly("SELECT 1")(one)
        strictly("SELECT 1")(one)
    assert "servers are cleaned" not in shared.pooler.log()
