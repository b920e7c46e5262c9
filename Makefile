# Every command a developer needs. `make` alone lists them.
SHELL := bash
.DEFAULT_GOAL := help

CARGO ?= cargo
PYTHON := .venv/bin/python
# Cargo's profile of what is built: `release`, and unit tests in `dev`; or `ci` (.ci/run), and clippy and unit tests in that, too.
PROFILE ?= release
FOR_ALL := $(if $(filter ci,$(PROFILE)),--profile ci)
# What the end-to-end tests run, and `make demo` too.
POOLHOUSE ?= $(CURDIR)/target/$(PROFILE)/poolhouse
# Run as it was built beside Poolhouse: alone, cargo would build it once more with other features of its dependencies.
SIM ?= $(CURDIR)/target/$(PROFILE)/sim
# How long `make fuzz` spends on each target.
FUZZ_SECONDS ?= 60
# How many random schedules the simulator runs in `make test`, and from which seed on: 70,000 in all.
SIM_CROWD_SCHEDULES ?= 200
SIM_POSTGRES_SCHEDULES ?= 30000
SIM_REDIS_SCHEDULES ?= 30000
SIM_MONGODB_SCHEDULES ?= 10000
SIM_SEED ?= 1
# How many kinds of them are played at once: each takes one processor. Those that take longest come first.
SIM_PROCESSES ?= $(shell nproc)
# Further arguments of bench/run.py: make bench BENCH_ARGS='--quick --only simple'
BENCH_ARGS ?=
# Names of programs in tests/suites/clients: make clients CLIENTS='pgx jdbc'; none are all
CLIENTS ?=
# Names of variants and further arguments of tests/suites/regress/run.py
REGRESS_ARGS ?=
# Names of variants and further arguments of tests/suites/regress/pgx.py
PGX_ARGS ?=
# Variants and further arguments of tests/suites/pgbouncer_suite/run.py
PGBOUNCER_SUITE_ARGS ?=
# Ways and further arguments of tests/suites/mongodb_suite/run.py
MONGODB_SUITE_ARGS ?=
# Versions and further arguments of tests/hunts/matrix/run.py
MATRIX_ARGS ?=
# Further arguments of tests/hunts/adversary.py
ADVERSARY_ARGS ?=
# Further arguments of tests/hunts/leaks.py, and of tests/hunts/leak_mutants.py
LEAKS_ARGS ?=
MUTANTS ?=
# Further arguments of tests/hunts/doctor_matrix.py, and names of its cases
DOCTOR_ARGS ?=
# Further arguments of pytest: make test-e2e PYTEST_ARGS='-k copy -x'
PYTEST_ARGS ?=
# How many processes share these tests; 0 runs them in pytest itself, which -s and --pdb need
TEST_PROCESSES ?= 2

.PHONY: help setup setup-bench build test test-quick test-unit test-sim test-e2e clients redis-clients mongodb-clients redis-regress rest-clients regress pgx-suite pgbouncer-suite mongodb-suite matrix adversary leaks adversary-mutants sim-mutants plan-mutants doctor-matrix demo bench bench-redis bench-mongodb bench-rest bench-load picture cases packages package-test fuzz fuzz-corpus lint clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

setup: ## install what is missing (Debian packages, .venv), and say what
	@scripts/setup.sh

setup-bench: ## the same, and the rivals of benchmarks
	@scripts/setup.sh bench

build: ## build the release binary
ifeq ($(PROFILE),ci)
	@# And all unit tests, which have dependencies with more features: otherwise these would be built twice.
	$(CARGO) test --workspace --locked $(FOR_ALL) --no-run
else
	$(CARGO) build --profile $(PROFILE) --locked -p poolhouse -p sim
endif

test: setup build test-unit test-sim test-e2e ## everything: unit tests, simulated schedules, real clients

test-quick: setup build ## under three minutes once it is built: unit tests, a thousand schedules, one end-to-end test of each kind
	$(CARGO) test --workspace --locked $(FOR_ALL) --lib -- --quiet
	printf '%s\n' 'postgres 350' 'redis 350' 'mongodb 250' 'crowd 50' | xargs -L 1 sh -c '$(SIM) "$$0" --schedules "$$1" --seed $(SIM_SEED)'
	POOLHOUSE=$(POOLHOUSE) $(PYTHON) -m pytest -q -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder -m quick tests

test-unit: ## unit and property tests of all crates
	$(CARGO) test --workspace --locked $(FOR_ALL)
	$(PYTHON) -m pytest -q -p no:cacheprovider bench/test_bench.py

test-sim: build ## random schedules in virtual time; a failure prints the command that replays it
	@printf '%s\n' 'postgres $(SIM_POSTGRES_SCHEDULES)' 'redis $(SIM_REDIS_SCHEDULES)' \
	    'mongodb $(SIM_MONGODB_SCHEDULES)' 'crowd $(SIM_CROWD_SCHEDULES)' | \
	    xargs -P $(SIM_PROCESSES) -L 1 sh -c '$(SIM) "$$0" --schedules "$$1" --seed $(SIM_SEED)'

test-e2e: ## real clients and a private PostgreSQL through the release binary (PYTEST_ARGS='-k copy -x'); tests/README.md is their map
	POOLHOUSE=$(POOLHOUSE) $(PYTHON) -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder -m 'not in_the_matrix' tests $(PYTEST_ARGS)

clients: setup build ## drivers of other projects, each in its own language (downloads them; CLIENTS='pgx jdbc' for some only)
	POOLHOUSE=$(POOLHOUSE) $(PYTHON) tests/suites/clients/run.py $(CLIENTS)

redis-clients: setup build ## the same for Redis (REDIS_CLIENTS_OF='ioredis go-redis' for some only)
	POOLHOUSE=$(POOLHOUSE) $(PYTHON) tests/suites/redis_clients/run.py $(REDIS_CLIENTS_OF)

mongodb-clients: setup build ## the same for MongoDB (MONGODB_CLIENTS_OF='node go-driver' for some only)
	POOLHOUSE=$(POOLHOUSE) $(PYTHON) tests/suites/mongodb_clients/run.py $(MONGODB_CLIENTS_OF)

mongodb-suite: setup build ## the tests of MongoDB's driver teams, directly and through Poolhouse (MONGODB_SUITE_ARGS='sharded --files transactions_unified')
	POOLHOUSE=$(POOLHOUSE) $(PYTHON) tests/suites/mongodb_suite/run.py $(MONGODB_SUITE_ARGS)

redis-regress: setup build ## Redis's own tests, directly and through Poolhouse (REDIS_UNITS='type/list scripting' for some only)
	tests/suites/redis_regress/fetch.sh
	POOLHOUSE=$(POOLHOUSE) $(PYTHON) tests/suites/redis_regress/run.py $(REDIS_UNITS)

rest-clients: setup build ## @upstash/redis over HTTP beside ioredis: the same results
	POOLHOUSE=$(POOLHOUSE) $(PYTHON) tests/suites/rest_clients/run.py

regress: setup-bench build ## PostgreSQL's own regression suite, directly and through Poolhouse and PgBouncer (downloads it; REGRESS_ARGS='transaction --only temp')
	POOLHOUSE=$(POOLHOUSE) $(PYTHON) tests/suites/regress/run.py $(REGRESS_ARGS)

pgx-suite: setup build ## the tests of pgx, Go's driver, directly and through Poolhouse (downloads them; PGX_ARGS='transaction --only TestEnum')
	POOLHOUSE=$(POOLHOUSE) $(PYTHON) tests/suites/regress/pgx.py $(PGX_ARGS)

pgbouncer-suite: setup-bench build ## PgBouncer's own tests, with Poolhouse in its place and with itself (downloads them; PGBOUNCER_SUITE_ARGS='poolhouse --only test_admin')
	POOLHOUSE=$(POOLHOUSE) $(PYTHON) tests/suites/pgbouncer_suite/run.py $(PGBOUNCER_SUITE_ARGS)

matrix: setup build ## our own tests of PostgreSQL's sessions on PostgreSQL 14 to 18 (downloads these; MATRIX_ARGS='18')
	POOLHOUSE=$(POOLHOUSE) $(PYTHON) tests/hunts/matrix/run.py $(MATRIX_ARGS)

adversary: setup build ## compare random client sessions with sessions of PostgreSQL itself (ADVERSARY_ARGS='--statements 1000000')
	POOLHOUSE=$(POOLHOUSE) $(PYTHON) tests/hunts/adversary.py $(ADVERSARY_ARGS)

leaks: setup build ## search for session state of one client that reaches another (LEAKS_ARGS='--statements 1000000')
	POOLHOUSE=$(POOLHOUSE) $(PYTHON) tests/hunts/leaks.py $(LEAKS_ARGS)

adversary-mutants: setup ## put known leaks (crates/proof/mutants/leaks) back one by one: how many statements until each is found? (MUTANTS='stale-plan')
	$(PYTHON) tests/hunts/leak_mutants.py $(MUTANTS)

sim-mutants: setup ## put known defects (crates/proof/mutants/sim) back one by one: how many schedules until each is found? (MUTANTS='handed-on-dirty')
	$(PYTHON) tests/hunts/sim_mutants.py $(MUTANTS)

plan-mutants: setup ## put other rules (crates/proof/mutants/plan) into the pool one by one: do the planner's tests notice? (MUTANTS='equal-lives')
	$(PYTHON) tests/hunts/plan_mutants.py $(MUTANTS)

doctor-matrix: setup build ## compare the doctor's findings with faults made on purpose, and with healthy runs (DOCTOR_ARGS='--runs 20 --json FILE')
	POOLHOUSE=$(POOLHOUSE) $(PYTHON) tests/hunts/doctor_matrix.py $(DOCTOR_ARGS)

demo: ## see it work: many clients, few servers, before and after (POOLHOUSE=path, or the installed one if none is built)
	@scripts/setup.sh demo
	@program='$(if $(filter file,$(origin POOLHOUSE)),,$(POOLHOUSE))'; \
	    [ -n "$$program" ] || [ -x '$(POOLHOUSE)' ] || program=$$(command -v poolhouse || true); \
	    [ -n "$$program" ] || { $(MAKE) build && program='$(POOLHOUSE)'; }; "$$program" demo

bench: setup-bench build ## measure beside PgBouncer, in front of Redis and MongoDB, and over HTTP (PGBOUNCER=path names another than sid's)
	POOLHOUSE=$(POOLHOUSE) $(PYTHON) bench/run.py $(BENCH_ARGS)
	POOLHOUSE=$(POOLHOUSE) $(PYTHON) bench/redis_run.py $(BENCH_REDIS_ARGS)
	$(MAKE) bench-mongodb
	POOLHOUSE=$(POOLHOUSE) $(PYTHON) bench/rest_run.py $(BENCH_REST_ARGS)
	$(CARGO) bench --locked -p pool

bench-redis: setup-bench build ## measure in front of Redis beside twemproxy and HAProxy
	POOLHOUSE=$(POOLHOUSE) $(PYTHON) bench/redis_run.py $(BENCH_REDIS_ARGS)

bench-mongodb: setup-bench build ## measure in front of MongoDB beside HAProxy
	$(CARGO) build --release --locked -p mongodb-session --example responder
	POOLHOUSE=$(POOLHOUSE) RESPONDER=$(CURDIR)/target/release/examples/responder $(PYTHON) bench/mongodb_run.py $(BENCH_MONGODB_ARGS)

bench-rest: setup-bench build ## measure Redis over HTTP beside webdis
	POOLHOUSE=$(POOLHOUSE) $(PYTHON) bench/rest_run.py $(BENCH_REST_ARGS)

bench-load: setup-bench build ## measure the load generator beside pgbench, ab and wrk, and what it measures beside the server's own clock
	POOLHOUSE=$(POOLHOUSE) $(PYTHON) bench/generator.py $(BENCH_ARGS)
	$(CARGO) test --locked --release -p load --test accuracy -- --ignored --test-threads=1

picture: ## draw docs/beside-pgbouncer.svg from the result file that docs/benchmarks.md shows
	$(PYTHON) bench/picture.py

cases: setup build ## the published cases as scenarios, in minutes, with one report (FULL=1: the published durations, hours)
	POOLHOUSE=$(POOLHOUSE) scripts/cases.sh

packages: ## Debian packages, a static tar file, an image, the bill of materials: into target/packages (SIGNING_KEY=NAME signs, ARCHITECTURES='amd64 arm64')
	scripts/packages/build.sh

package-test: setup build ## install the packages on machines of their own (namespaces, systemd), upgrade them under clients, remove them
	POOLHOUSE=$(POOLHOUSE) $(PYTHON) -m pytest tests/packages $(PYTEST_ARGS)

fuzz: ## fuzz every parser for FUZZ_SECONDS each (nightly Rust)
	scripts/fuzz.sh $(FUZZ_SECONDS)

fuzz-corpus: ## replay the kept fuzzing corpus (nightly Rust)
	scripts/fuzz.sh corpus

lint: ## formatting, clippy (of the fuzz targets, too), the arrows between crates, lengths of files and functions, licences and ages of crates
	$(CARGO) fmt --all --check
	@# Clippy links nothing: any file will do for libFuzzer, which takes long to compile.
	CUSTOM_LIBFUZZER_PATH=$(CURDIR)/crates/proof/fuzz/Cargo.toml $(CARGO) clippy --workspace --all-targets --locked $(FOR_ALL) -- -D warnings
	@# Alone: the features of a workspace are those of all its crates together.
	$(CARGO) clippy -p poolhouse --no-default-features --locked $(FOR_ALL) -- -D warnings
	scripts/check-layers
	scripts/check-limits
	scripts/check-crates

clean: ## remove what was built and the virtual environment
	$(CARGO) clean
	rm -rf .venv crates/proof/fuzz/target crates/proof/fuzz/artifacts tests/.pytest_cache
	find tests bench scripts -name __pycache__ -type d -prune -exec rm -rf {} +
