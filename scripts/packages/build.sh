#!/usr/bin/env bash
# Builds all packages of this release into target/packages: Debian packages, a tar file with a static binary, an OCI image
# layout, the bill of materials, checksums, and with SIGNING_KEY=NAME a signature of them by that key of gpg.
#
# The same commit and compiler give the same bytes (reproducible.sh).
# ARCHITECTURES='amd64 arm64' makes the static ones for arm64, too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

say() { printf 'packages: %s\n' "$*"; }
fail() { printf 'packages: %s\n' "$*" >&2; exit 1; }

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version *= *"\(.*\)"/\1/p' Cargo.toml)
to=${PACKAGES:-target/packages}
architectures=${ARCHITECTURES:-amd64}
. scripts/packages/reproducible.sh

# Rust's name of a machine -> the path of its binary, after it is built.
build() {
    cargo build --profile dist --locked --package poolhouse --target "$1" >&2 || fail "the build for $1 failed"
    echo "target/$1/dist/poolhouse"
}

# The program without symbols, and its debug symbols in a file beside it.
split() {
    local objcopy=$1 binary=$2
    "$objcopy" --only-keep-debug --compress-debug-sections "$binary" "$work/poolhouse.debug"
    "$objcopy" --strip-all --add-gnu-debuglink="$work/poolhouse.debug" "$binary" "$work/poolhouse"
}

debian_packages() {
    local binary
    binary=$(build x86_64-unknown-linux-gnu)
    "$binary" manual --to "$work/manual"
    split objcopy "$binary"
    scripts/packages/debian.py --binary "$work/poolhouse" --symbols "$work/poolhouse.debug" --manual "$work/manual" \
        --version "$version" --to "$to"
}

# What static binaries need: musl of Rust, a C compiler for the crate `ring`, and a linker.
static_target() {
    case $1 in
        amd64) echo x86_64-unknown-linux-musl ;;
        arm64) echo aarch64-unknown-linux-musl ;;
        *) fail "there is no static build for $1" ;;
    esac
}
prepare_static() {
    local target
    target=$(static_target "$1")
    rustup target list --installed 2>/dev/null | grep -qx "$target" ||
        rustup target add "$target" >&2 || fail "Rust has no library for $target here: rustup target add $target"
    case $1 in
        amd64) command -v musl-gcc >/dev/null || fail "musl-gcc is missing: apt-get install musl-tools" ;;
        arm64)
            command -v aarch64-linux-gnu-gcc >/dev/null || fail "a compiler is missing: apt-get install gcc-aarch64-linux-gnu"
            export CC_aarch64_unknown_linux_musl=aarch64-linux-gnu-gcc
            export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=rust-lld ;;
    esac
}

static_packages() {
    local architecture target images=()
    for architecture in $architectures; do
        prepare_static "$architecture"
        target=$(static_target "$architecture")
        build "$target" >/dev/null
        split "$([ "$architecture" = arm64 ] && echo aarch64-linux-gnu-objcopy || echo objcopy)" "target/$target/dist/poolhouse"
        mv "$work/poolhouse" "$work/poolhouse-$architecture"
        images+=(--binary "$architecture=$work/poolhouse-$architecture")
        scripts/packages/portable.py --binary "$work/poolhouse-$architecture" --manual "$work/manual" \
            --name "poolhouse-$version-${target/-unknown/}" --to "$to"
        scripts/packages/sbom.py --target "$target" --to "$to/poolhouse-$version-${target/-unknown/}.cdx.json"
    done
    scripts/packages/image.py "${images[@]}" --version "$version" --commit "$POOLHOUSE_COMMIT" --to "$to/image"
    # One file of it, to carry around: `skopeo copy oci-archive:FILE …`
    tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=gnu \
        --file "$to/poolhouse-$version-image.tar" -C "$to/image" .
}

# The chart, as `helm install poolhouse FILE` takes it.
chart() {
    tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=gnu \
        -C packaging/helm poolhouse | gzip -9n >"$to/poolhouse-chart-$version.tgz"
}

sign() {
    (cd "$to" && find . -maxdepth 1 -type f ! -name 'SHA256SUMS*' -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
    rm -f "$to/SHA256SUMS.asc"
    if [ -n "${SIGNING_KEY:-}" ]; then
        gpg --batch --local-user "$SIGNING_KEY" --armor --detach-sign --output "$to/SHA256SUMS.asc" "$to/SHA256SUMS"
        say "signed by $SIGNING_KEY; check with: gpg --verify SHA256SUMS.asc SHA256SUMS && sha256sum -c SHA256SUMS"
    else
        say "not signed: name a key of gpg in SIGNING_KEY"
    fi
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$to" && mkdir -p "$to"
debian_packages
static_packages
[ ! -d packaging/helm/poolhouse ] || chart
sign
say "$version ($POOLHOUSE_COMMIT) is in $to"
