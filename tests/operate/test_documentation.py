"""Compares README.md and docs/ with the product: examples are accepted, and the keys, metrics, options and links that
they name exist. Whether a sentence is true, no test can tell.
"""

import functools
import json
import os
import re
import subprocess
import sys

import pytest

from support import pooler
from support.postgres_cluster import scram_verifier

pytestmark = pytest.mark.poolhouse_only

PAGES = [pooler.ROOT / "README.md", *sorted((pooler.ROOT / "docs").glob("*.md"))]
NAMES = [path.name for path in PAGES]
# Pages for those who change the code.
CODE_PAGES = [pooler.ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "tests/README.md")]
SOURCES = sorted((pooler.ROOT / "crates").glob("**/src/**/*.rs"))
# Words that look like keys and belong to PostgreSQL: its parameters, those of its clients, and columns of its tables.
OTHERS = {
    "app_password", "application_name", "client_encoding", "current_setting", "default_transaction_isolation", "max_connections", "max_protocol_version", "min_protocol_version",
    "checkpoint_completion_target", "checkpoint_timeout", "idle_in_transaction_session_timeout", "log_checkpoints", "max_wal_size", "search_path",
    "set_config",
    "statement_timeout", "track_activities", "transaction_timeout",
}
# The first depends on this machine's limit of descriptors; the page explains the second.
# The last: examples that are a part of a file have no users.
EXPECTED_WARNINGS = ("descriptor", "in session mode each client of `billing` keeps a server", "every program on this machine gets in at")
# Options of programs other than Poolhouse.
OTHER_OPTIONS = {"--now", "--install", "--extract", "--gzip", "--file", "--from-literal", "--set", "--locked", "--no-default-features", "--check", "--verify", "--example", "--release", "--quick", "--render", "--rounds", "--search", "--seconds", "--warmup", "--json", "--only", "--targets",
                 # Of programs that give passwords.
                 "--hostname", "--port", "--username", "--region", "--resource-type"}


def fenced(text, language):
    """The fenced blocks of a language: (line, text)."""
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text[: match.start()].count("\n") + 1, match[1]) for match in found]


def spans(text):
    """The content of `backticks` outside of fenced blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))


def examples(language):
    return [pytest.param(text, id=f"{path.name}:{line}") for path in PAGES for line, text in fenced(path.read_text(), language)]


# -- examples of the configuration. Those of scenarios are read where scenarios are tested.

CONFIGURATIONS = [example for example in examples("toml") if "[scenario]" not in example.values[0]]


@pytest.fixture
def check(tmp_path, certificates):
    """Runs `poolhouse check` with all files and variables that the documentation names."""
    for name, source in {"server.pem": certificates.server.certificate, "server.key": certificates.server.key,
                         "clients.pem": certificates.authority.certificate, "ca.pem": certificates.authority.certificate}.items():
        (tmp_path / name).write_bytes(source.read_bytes())
    for name in ("admin", "dashboard"):
        (tmp_path / name).write_text("0123456789abcdef0123456789abcdef\n")
    (tmp_path / "userlist.txt").write_text('"app2" "app2-secret"\n"report" "secret"\n')

    def run(text):
        assert text.strip(), "the example is empty"
        text = re.sub(r"/(?:etc/poolhouse|run/secrets)/", f"{tmp_path}/", text).replace("SCRAM-SHA-256$4096:…", scram_verifier("app"))
        if not re.search(r"^\[", text, re.MULTILINE):
            text = f'[[database]]\nname = "shop"\n{text}'
        path = tmp_path / "poolhouse.toml"
        path.write_text(text)
        for file in tmp_path.iterdir():
            file.chmod(0o600)
        variables = dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "secret")
        return subprocess.run([pooler.BINARY, "check", str(path)], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=20, env={**os.environ, **variables})

    return run


@pytest.mark.parametrize("text", CONFIGURATIONS)
def test_an_example_is_accepted_without_an_unexpected_warning(check, text):
    done = check(text)
    warnings = [line for line in done.stdout.splitlines() if "warning: " in line and not any(one in line for one in EXPECTED_WARNINGS)]
    assert done.returncode == 0 and not warnings, done.stdout


@pytest.mark.parametrize("text", CONFIGURATIONS)
def test_what_is_commented_out_in_an_example_could_stand_there(check, text):
    """One line at a time, because some exclude each other."""
    for line in re.findall(r"^# \w+ = .*$", text, re.MULTILINE):
        done = check(text.replace(line, line.removeprefix("# ")))
        assert "unknown key" not in done.stdout and "no TOML" not in done.stdout, f"{line}\n{done.stdout}"


def test_a_wrong_key_in_an_example_is_noticed(check):
    assert check('url = "postgres://app@127.0.0.1/shop"\n').returncode == 0
    done = check('url = "postgres://app@127.0.0.1/shop"\nmax_sise = 4\n')
    assert done.returncode == 2 and "unknown key `max_sise`" in done.stdout, done.stdout


# -- names


@functools.cache
def keys():
    """All keys of the configuration and of URLs, as the program lists them."""
    lists = [body for path in SOURCES if "lab" not in path.relative_to(pooler.ROOT).parts for body in re.findall(r"const \w+_KEYS: &\[&str\] =\s*&\[(.*?)\];", path.read_text(), re.DOTALL)]
    found = set(re.findall(r'"(\w+)"', " ".join(lists)))
    assert {"max_size", "tls_cert", "auth_query", "sslmode", "listener"} <= found
    return found


@functools.cache
def program_text():
    """The program's sources, with literals that go on in the next line in one piece."""
    return " ".join(re.sub(r"\\\n\s*", "", path.read_text()) for path in SOURCES)


@functools.cache
def scenario_keys():
    """All keys of scenario files."""
    files = [path for path in SOURCES if ("load" in path.parts and "scenario" in "/".join(path.parts)) or "question" in path.relative_to(pooler.ROOT).parts]
    found = {word for path in files for word in re.findall(r'"([a-z]+(?:_[a-z]+)*)"', path.read_text())}
    assert {"stages", "reuse", "fail_if", "server_limit"} <= found
    return found


@functools.cache
def literals():
    """Every string literal of the program that is one word: reasons, states, methods."""
    return {word for path in SOURCES for word in re.findall(r'"([a-z]+(?:_[a-z]+)+)"', path.read_text())}


@functools.cache
def fields():
    """The fields of result files, and of the JSON at the admin address."""
    files = [path for path in SOURCES if "lab" in path.parts and {"result", "result.rs"} & set(path.parts) or "admin-api" in path.parts]
    found = {name for path in files for name in re.findall(r"^    (?:pub )?(\w+):", path.read_text(), re.MULTILINE)}
    assert {"response_ms", "created_for", "in_use", "bucket_bounds_ms"} <= found
    return found


def of_pgbouncer(text):
    """The words in the first column of the page's tables, and in PgBouncer's own files there."""
    columns = " ".join(re.findall(r"^\| (.*?) \|", text, re.MULTILINE))
    return set(re.findall(r"\w+", columns)) | set(re.findall(r"\w+", " ".join(block for _, block in fenced(text, "ini"))))


def without_first_columns(text):
    return re.sub(r"^\| .*? \|", "|", text, flags=re.MULTILINE)


def unknown_words(text, allowed):
    """Words with an underscore, and keys of `key = value`, that are not known."""
    found = set()
    for span in spans(text):
        words = set(re.findall(r"(?<![\w/.$-])[a-z]+(?:_[a-z]+)+(?![\w/(.-])", span)) | set(re.findall(r"^(?:\[.*\] )?([a-z_]+) = ", span))
        found |= {word for word in words - allowed if not re.match(r"pg_|poolhouse_|hikaricp_", word)}
    return found


@pytest.mark.parametrize("path", PAGES, ids=NAMES)
def test_every_key_that_is_named_exists(path):
    text, allowed = path.read_text(), keys() | scenario_keys() | literals() | fields() | OTHERS
    if path.name in ("from-pgbouncer.md", "pgbouncer-settings.md"):
        text, allowed = without_first_columns(text), allowed | of_pgbouncer(text)
    if path.name == "suites.md":
        # The names of PgBouncer's own tests are no keys.
        text = re.sub(r"<!-- pgbouncer-suite -->.*?<!-- end of pgbouncer-suite -->", "", text, flags=re.DOTALL)
    assert not unknown_words(text, allowed)


def test_a_key_that_does_not_exist_is_noticed():
    text = "Set `max_sise`, or `[pool] sise = 4`, and `mode = \"session\"`; see `max_size`.\n```\n`not_here`\n```\n"
    assert unknown_words(text, keys()) == {"max_sise", "sise"}


def test_every_key_is_explained_in_the_guide():
    guide = (pooler.ROOT / "docs/guide.md").read_text()
    assert not {key for key in keys() if not re.search(rf"\b{key}\b", guide)}


@pytest.fixture
def families(start):
    """Metric families of a Poolhouse that has served clients: name -> labels of its samples, if it has samples."""
    made = start()
    with made.connect() as connection:
        connection.execute("SELECT 1")
        text = made.get("/metrics")[1]
    found = {name: set() for name in re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE)}
    for sample, labels in pooler.parse_metrics(text):
        family = next(name for name in (sample, re.sub(r"_(total|info|count|sum|bucket)$", "", sample)) if name in found)
        found[family] |= {label for label, _ in labels}
    return found


def wrong_metrics(text, families):
    wrong = set()
    for name, labels in re.findall(r"\b(poolhouse_[a-z_]+[a-z])(?:\{([^}]*)\})?", text):
        family = next((known for known in (name, re.sub(r"_(total|info|count|sum|bucket)$", "", name)) if known in families), None)
        named = set(re.findall(r"(\w+)(?:=|,|$)", re.sub(r'"[^"]*"', "", labels)))
        if name == "poolhouse_bench":  # the schema of the load generator's tables
            continue
        if family is None or (families[family] and not named <= families[family]):
            wrong.add(name)
    return wrong


def test_every_metric_that_is_named_exists(families):
    for path in PAGES:
        assert not wrong_metrics(path.read_text(), families), path.name
    text = 'poolhouse_waiters, poolhouse_wayters, poolhouse_reloads_total{result="failed"}, poolhouse_reloads_total{why="failed"}'
    assert wrong_metrics(text, families) == {"poolhouse_wayters", "poolhouse_reloads_total"}


def test_every_option_that_is_named_exists():
    verbs = [["serve"], ["check"], ["demo"], ["bench"], ["bench", "merge"], ["bench", "report"], ["plan"], ["sweep"], ["top"], ["convert"], ["pgbouncer"], ["doctor"], ["ctl"], *(["ctl", "http://127.0.0.1:1", order] for order in ("pause", "resume", "reconnect", "drain", "reload", "show", "kill"))]
    helps = [subprocess.run([pooler.BINARY, *verb, "--help"], text=True, capture_output=True, timeout=20) for verb in verbs]
    assert all(done.returncode == 0 for done in helps), [done.stderr for done in helps]
    known = set(re.findall(r"--[a-z][a-z-]*", " ".join(done.stdout for done in helps))) | OTHER_OPTIONS
    for path in PAGES:
        assert not set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", re.sub(r"<!--.*?-->", "", path.read_text()))) - known, path.name


def test_every_error_of_the_guides_table_is_in_the_program():
    """Text in backticks after an SQLSTATE, or with more than one word; `…` matches anything."""
    guide = (pooler.ROOT / "docs/guide.md").read_text()
    table = guide.split("| what a client sees |")[1].split("\n\n")[0]
    texts = [re.sub(r"^[0-9A-Z]{5} ?", "", span) for line in table.splitlines() for span in re.findall(r"`([^`]+)`", line.split(" | ")[0])]
    parts = [part.strip() for text in texts if " " in text for part in text.split("…") if part.strip()]
    program = program_text().replace('\\"', '"')
    # messages of PostgreSQL
    parts.remove("is not yet defined in this session")
    assert len(parts) >= 4 and not [part for part in parts if part not in program]


def test_every_log_line_that_is_shown_is_in_the_program():
    program = program_text()
    lines = [line for path in PAGES for _, block in fenced(path.read_text(), "") for line in re.findall(r"^INFO (.*)$", block, re.MULTILINE)]
    assert len(lines) >= 3 and not [line for line in lines if f'"{line}"' not in program]


# -- figures


@functools.cache
def rendered(result):
    """The output of the program that wrote a result file."""
    program = json.loads((pooler.ROOT / result).read_text())["command"].split()[0]
    return subprocess.run([sys.executable, program, "--render", result], cwd=pooler.ROOT, text=True, stdout=subprocess.PIPE, check=True, timeout=60).stdout


def test_the_benchmarks_tables_are_those_of_their_result_files():
    text = (pooler.ROOT / "docs/benchmarks.md").read_text()
    tables = re.findall(r"<!-- bench:begin -->(.*?)<!-- bench:end -->", text, re.DOTALL)
    for table in tables:
        name = re.search(r"--json\s(bench/results/[\w-]+\.json)", table)[1]
        rows, printed = re.findall(r"^\|.*\|$", table, re.MULTILINE), rendered(name)
        assert len(rows) > 10 and not [row for row in rows if row not in printed], name
    assert len(tables) == 2


def figures(text):
    return {number.replace(",", "") for number in re.findall(r"\d(?:[\d.,]*\d)?", text)}


def test_the_readmes_figures_are_those_of_their_result_files():
    """Each row of the comparison table names its source last: a result file, or a page that is generated from one."""
    rows = re.findall(r"^\| (.*) \| (.*) \| (.*) \| \[`make [\w-]+`\]\(([\w./-]+)(?:#[\w-]+)?\) \|$", PAGES[0].read_text(), re.MULTILINE)
    for what, ours, theirs, source in rows:
        text = rendered(source) if source.endswith(".json") else (pooler.ROOT / source).read_text()
        assert figures(ours + theirs) <= figures(text), what
    assert len(rows) == 5


def test_the_readme_asks_for_the_rust_that_is_needed():
    (needed,) = re.findall(r'^rust-version = "(.*)"$', (pooler.ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert f"Rust ({needed} or newer" in PAGES[0].read_text()


# -- links


def anchors(path):
    """The anchors that GitHub makes from headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", [*PAGES, *CODE_PAGES], ids=[*NAMES, *(str(page.relative_to(pooler.ROOT)) for page in CODE_PAGES)])
def test_every_link_leads_somewhere(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if target.startswith("http"):
            continue
        file, _, anchor = target.partition("#")
        there = path.parent / file if file else path
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


def test_the_guide_lists_every_page():
    text = (pooler.ROOT / "docs" / "guide.md").read_text()
    listed = text.partition("Further pages:")[2].partition("\n## ")[0]
    missing = [name for name in NAMES if name not in ("README.md", "guide.md") and f"]({name})" not in listed]
    assert missing == []


# -- pages for those who change the code


def test_the_example_of_a_test_is_the_one_that_runs():
    ((_, example),) = fenced((pooler.ROOT / "tests/README.md").read_text(), "python")
    assert example == (pooler.ROOT / "tests/postgres/test_example.py").read_text()


@pytest.mark.parametrize("page", CODE_PAGES, ids=lambda page: page.name)
def test_paths_and_targets_that_a_page_names_are_there(page):
    text = page.read_text()
    targets = set(re.findall(r"^([\w-]+):", (pooler.ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([\w-]+)", text)) <= targets
    for path in re.findall(r"`((?:crates|tests|docs|scripts)/[\w./-]+)`", text):
        assert (pooler.ROOT / path).exists(), path
