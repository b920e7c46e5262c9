# What makes the same commit and compiler give the same bytes in any folder. `build.sh` reads this file in the folder of the
# sources: SOURCE_DATE_EPOCH is the commit's time unless it is set, and no name of a folder of this machine gets into a
# program: not into messages of panics, nor into debug symbols, of which the build id is made.

: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}"
: "${POOLHOUSE_COMMIT:=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)}"
export SOURCE_DATE_EPOCH POOLHOUSE_COMMIT

export RUSTFLAGS="--remap-path-prefix=$PWD=/poolhouse --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo ${RUSTFLAGS:-}"
# Of the crates that contain C and assembler.
export CFLAGS="-ffile-prefix-map=$PWD=/poolhouse -ffile-prefix-map=${CARGO_HOME:-$HOME/.cargo}=/cargo ${CFLAGS:-}"
