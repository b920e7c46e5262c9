#!/usr/bin/env bash
# Fetches Redis's own tests into regress/redis: Debian's source package of redis 7.0.15. Changes nothing of the machine's apt: the
# list of sources, and what apt remembers of it, are in regress/apt. Does nothing when all is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

version=7.0.15
# What is fetched has to be this, as Debian has it in bookworm.
checksum=4b1dc4ee6d622a09fff9c6777191209750fb5e5a725ef78ea012d6eef4c22982
target=$PWD/regress/redis
[ -f "$target/.complete" ] && exit 0

command -v tclsh8.6 >/dev/null || command -v tclsh8.5 >/dev/null || { echo "Redis's tests need tcl: make setup" >&2; exit 1; }
apt=$PWD/regress/apt
mkdir -p "$apt"/{lists/partial,cache/archives/partial,source}
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main" >"$apt/sources.list"
options=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User="$(id -un)")
apt-get "${options[@]}" update
(cd "$apt/source" && apt-get "${options[@]}" source --download-only redis)
tarball=$apt/source/redis_$version.orig.tar.gz
echo "$checksum  $tarball" | sha256sum --check --quiet

rm -rf "$target"
mkdir -p "$target"
tar -xzf "$tarball" -C "$target" --strip-components=1
# Some tests call these by where a build would have put them.
for program in redis-server redis-cli redis-benchmark; do
    ln -s "$(command -v $program)" "$target/src/$program"
done
touch "$target/.complete"
