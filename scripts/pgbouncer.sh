#!/usr/bin/env bash
# Unpacks PgBouncer of Debian's suite `sid` into .venv/pgbouncer, beside the installed system, which it does not touch.
# Benchmarks take it as the rival: the one of a stable suite can be years older. `.venv/pgbouncer/run` runs it with
# the libraries of that suite. Says so and does nothing more where the suite cannot be had.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

suite=sid
home=.venv/pgbouncer

say() { printf 'setup: %s\n' "$*"; }

# The main archive of the installed suite, as apt is configured here, and the keys that it trusts.
source_line() {
    apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(REPO_URI)|$(SIGNED_BY)' 'Created-By: Packages' |
        awk -F'|' -v suite="$suite" '$1 == "Debian" && $2 == "Debian" && $3 == "main" {
            print "deb" ($5 ~ /^\// ? " [signed-by=" $5 "]" : "") " " $4 " " suite " main"; exit
        }'
}

# An apt that knows this suite only, and holds nothing for installed.
private_apt() {
    apt-get -qq -o Dir::State="$work/state" -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" \
        -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts="$work/none" -o APT::Sandbox::User=root \
        -o Dir::Etc::preferencesparts="$work/none" -o APT::Install-Recommends=false "$@"
}

fetch() {
    mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/none" "$work/root"
    : >"$work/status"
    source_line >"$work/sources.list"
    [ -s "$work/sources.list" ] || { echo "apt knows no archive of Debian" >&2; return 1; }
    private_apt update && private_apt -y -d install pgbouncer || return 1
    local package
    for package in "$work"/cache/archives/*.deb; do
        dpkg-deb -x "$package" "$work/root" || return 1
    done
    keep || return 1
    "$work/kept/run" --version >/dev/null
}

# The program, its loader and the libraries that this names: a tenth of what has come. None of the system's are taken.
# With them the manual of its settings, which a test compares with ours.
keep() {
    local root=$work/root kept=$work/kept loader libraries
    loader=$(find "$root" -name 'ld-linux-*.so.*' | head -n 1)
    libraries=$(dirname "$(find "$root" -name 'libc.so.6' | head -n 1)")
    mkdir -p "$kept/lib"
    "$loader" --library-path "$libraries" --list "$root/usr/sbin/pgbouncer" >"$work/list" || return 1
    awk '$3 ~ /^\// { print $3 }' "$work/list" | xargs -I FILE cp -L FILE "$kept/lib/" || return 1
    cp -L "$loader" "$kept/loader" && cp "$root/usr/sbin/pgbouncer" "$kept/" || return 1
    gzip -dc "$root/usr/share/man/man5/pgbouncer.5.gz" >"$kept/pgbouncer.5" || return 1
    cat >"$kept/run" <<'RUN'
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
exec "$here/loader" --library-path "$here/lib" "$here/pgbouncer" "$@"
RUN
    chmod 755 "$kept" "$kept/run"
}

[ -x $home/run ] && [ -s $home/pgbouncer.5 ] && $home/run --version >/dev/null 2>&1 && exit 0
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    say "this is no Debian: benchmarks take the PgBouncer that is installed"
    exit 0
fi
say "unpacking PgBouncer of Debian's suite $suite"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if fetch; then
    rm -rf $home && mv "$work/kept" $home
    say "$($home/run --version | head -n 1)"
else
    say "it could not be had: benchmarks take the PgBouncer that is installed"
fi
