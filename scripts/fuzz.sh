#!/usr/bin/env bash
# Fuzzes every target of fuzz/: `fuzz.sh SECONDS` searches for so long in each, `fuzz.sh corpus` replays the kept
# corpus only. A crash leaves its input in fuzz/artifacts and the command that replays it on the screen.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode=${1:?usage: fuzz.sh SECONDS|corpus}
fail() { printf 'fuzz: %s\n' "$*" >&2; exit 1; }

[ -f fuzz/Cargo.toml ] || fail "there is no fuzz/Cargo.toml"
cargo +nightly --version >/dev/null 2>&1 || fail "nightly Rust is needed: rustup toolchain install nightly"
if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "fuzz: installing cargo-fuzz"
    cargo install --locked cargo-fuzz
fi

# libFuzzer's arguments; its own limits keep a runaway input from taking the machine along.
# A replay runs each input once, so it is built to be there soon rather than to be fast.
if [ "$mode" = corpus ]; then limits=(-runs=0) build=(--dev); else limits=("-max_total_time=$mode") build=(); fi
limits+=(-rss_limit_mb=2048 -timeout=10)

mapfile -t targets < <(cargo +nightly fuzz list)
[ ${#targets[@]} -gt 0 ] || fail "fuzz/ has no targets"
cargo +nightly fuzz build "${build[@]}"
for target in "${targets[@]}"; do
    # What is found by searching goes to the first directory, which is not kept; the kept corpus is read only.
    found=fuzz/target/corpus/$target
    kept=fuzz/corpus/$target
    mkdir -p "$found" "$kept"
    echo "fuzz: $target ($(find "$kept" -type f | wc -l) kept inputs)"
    cargo +nightly fuzz run "${build[@]}" "$target" "$found" "$kept" -- "${limits[@]}"
done
echo "fuzz: no target failed: ${targets[*]}"
