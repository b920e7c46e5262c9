#!/usr/bin/env bash
# Installs what building, testing and measuring Poolhouse needs, says what it installs, and does nothing when
# all is there. `setup.sh bench` also installs rivals that only benchmarks need, `setup.sh demo` only what
# `poolhouse demo` needs. Runs as root, or as an ordinary user with sudo. Does not install Rust: it says how.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# --- Rust -----------------------------------------------------------------------------------------------------

needed_rust=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml)
rust_advice="Install Rust $needed_rust or newer as https://rustup.rs describes, then run this again."

check_rust() {
    # rustup puts its commands there; a shell that has not been started anew does not know yet.
    if ! command -v cargo >/dev/null && [ -x "$HOME/.cargo/bin/cargo" ]; then
        fail "cargo is in $HOME/.cargo/bin, which is not on PATH. Run: . \"$HOME/.cargo/env\""
    fi
    command -v cargo >/dev/null || fail "no Rust found. $rust_advice"
    local have
    have=$(rustc --version | awk '{print $2}')
    if [ "$(printf '%s\n%s\n' "$needed_rust" "${have%%-*}" | sort -V | head -n 1)" != "$needed_rust" ]; then
        fail "rustc $have is too old, $needed_rust is needed (Debian's own package may lag behind). $rust_advice"
    fi
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 ||
        say "rustfmt or clippy is missing, 'make lint' needs them: rustup component add rustfmt clippy"
}

# --- Debian packages ------------------------------------------------------------------------------------------

# Debian keeps the server's programs off PATH, one directory per version.
have_postgres() {
    command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}
have_pgbench() {
    command -v pgbench >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/pgbench' >/dev/null
}
# Daemons live in /usr/sbin, which an ordinary user's PATH may lack.
have() { PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null; }
# Opens the pages of results in tests.
have_browser() { have chromium || have chromium-browser || have google-chrome; }
have_venv() { have python3 && python3 -c 'import ensurepip, venv' 2>/dev/null; }

missing_packages() {
    have_postgres || echo postgresql
    have_pgbench || echo postgresql-contrib
    have pgbouncer || echo pgbouncer
    [ "$purpose" != demo ] || return 0
    have cc || echo build-essential
    have psql || echo postgresql-client
    have openssl || echo openssl
    have haproxy || echo haproxy
    have slapd || [ -x /usr/sbin/slapd ] || echo slapd
    have nutcracker || echo nutcracker
    have redis-server || echo redis-server
    have redis-cli || echo redis-tools
    have tclsh || echo tcl
    have pgpool || echo pgpool2
    have_browser || echo chromium
    have_venv || echo python3-venv
    [ "$purpose" = bench ] || return 0
    have webdis || echo webdis
    have wrk || echo wrk
    have ab || echo apache2-utils
    have nginx || echo nginx-light
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

install_packages() {
    local packages
    mapfile -t packages < <(missing_packages)
    [ ${#packages[@]} -gt 0 ] || return 0
    have apt-get || fail "this is no Debian: please install by hand what these packages hold: ${packages[*]}"
    [ "$(id -u)" = 0 ] || have sudo || fail "neither root nor sudo: please have these installed: ${packages[*]}"
    say "installing Debian packages: ${packages[*]}"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"
    local left
    left=$(missing_packages | tr '\n' ' ')
    [ -z "$left" ] || fail "still missing after the installation: $left"
    say "Debian may have started services of these packages; Poolhouse uses none of them, only the programs"
}

# --- Python ---------------------------------------------------------------------------------------------------

make_venv() {
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$(python3 --version) is too old, 3.11 is needed"
    local want stamp=.venv/requirements.sha256
    want=$(sha256sum <tests/requirements.txt)
    [ -x .venv/bin/python ] && .venv/bin/python -c '' 2>/dev/null && [ "$(cat $stamp 2>/dev/null)" = "$want" ] && return 0
    say "making .venv with: $(grep -v '^#' tests/requirements.txt | tr '\n' ' ')"
    python3 -m venv --clear .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -r tests/requirements.txt
    echo "$want" >$stamp
}

# --- What tries alert rules -----------------------------------------------------------------------------------

# One program of Debian's package, without the daemon and what that needs. Tests that need it are skipped where it is not there.
fetch_promtool() {
    have promtool || [ -x .venv/bin/promtool ] && return 0
    if ! have apt-get || ! have dpkg-deb; then
        say "no promtool found (it comes with Prometheus): tests of alert rules will be skipped"
        return 0
    fi
    say "taking promtool out of Debian's package prometheus"
    local folder
    folder=$(mktemp -d)
    (cd "$folder" && apt-get download -qq -o APT::Sandbox::User=root prometheus &&
        dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool) &&
        mv "$folder/usr/bin/promtool" .venv/bin/ ||
        say "promtool could not be had: tests of alert rules will be skipped"
    rm -rf "$folder"
}

# --- A server that speaks MongoDB's protocol ------------------------------------------------------------------

# Tests that need it are skipped where it is not there.
build_ferretdb() {
    local folder=tests/support/mongodb_servers/ferretdb
    [ -x $folder/ferretdb ] && [ $folder/ferretdb -nt $folder/go.sum ] && [ $folder/ferretdb -nt $folder/build.sh ] && return 0
    have go || { say "no Go found (https://go.dev/doc/install): tests that need FerretDB will be skipped"; return 0; }
    say "building FerretDB for tests of MongoDB, once (some minutes)"
    $folder/build.sh || say "FerretDB could not be built: tests that need it will be skipped"
}

purpose=${1:-test}
case $purpose in test | bench | demo) ;; *) fail "there is no '$purpose' to set up: write bench, demo, or nothing" ;; esac
[ "$purpose" != demo ] || { install_packages; exit 0; }
check_rust
install_packages
make_venv
fetch_promtool
build_ferretdb
scripts/pgbouncer.sh
say "everything is there"
