#!/usr/bin/env bash
# Fuzzes every target of crates/proof/fuzz/, or the named ones: `fuzz.sh SECONDS [TARGET...]` searches for so long in each,
# `fuzz.sh corpus` replays the kept corpus only. A crash leaves its input in crates/proof/fuzz/artifacts and the command that
# replays it on the screen.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=crates/proof/fuzz
mode=${1:?usage: fuzz.sh SECONDS|corpus [TARGET...]}
shift
fail() { printf 'fuzz: %s\n' "$*" >&2; exit 1; }

[ -f $folder/Cargo.toml ] || fail "there is no $folder/Cargo.toml"
cargo +nightly --version >/dev/null 2>&1 || fail "nightly Rust is needed: rustup toolchain install nightly"
if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "fuzz: installing cargo-fuzz"
    cargo install --locked cargo-fuzz
fi

# libFuzzer's arguments; its own limits keep a runaway input from taking the machine along.
# A replay runs each input once, so it is built to be there soon rather than to be fast.
if [ "$mode" = corpus ]; then limits=(-runs=0) build=(--dev); else limits=("-max_total_time=$mode") build=(); fi
limits+=(-rss_limit_mb=2048 -timeout=10)

targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(cargo +nightly fuzz list --fuzz-dir "$folder")
[ ${#targets[@]} -gt 0 ] || fail "$folder has no targets"
cargo +nightly fuzz build --fuzz-dir "$folder" "${build[@]}"
for target in "${targets[@]}"; do
    # What is found by searching goes to the first directory, which is not kept; the kept corpus is read only.
    found=$folder/target/corpus/$target
    kept=$folder/corpus/$target
    mkdir -p "$found" "$kept"
    echo "fuzz: $target ($(find "$kept" -type f | wc -l) kept inputs)"
    cargo +nightly fuzz run --fuzz-dir "$folder" "${build[@]}" "$target" "$found" "$kept" -- "${limits[@]}"
done
echo "fuzz: no target failed: ${targets[*]}"
