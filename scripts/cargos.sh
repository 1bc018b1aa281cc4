#!/usr/bin/env bash
# Builds the programs behind the wasm and container Cargos, reports what it does, does nothing twice.
#   scripts/cargos.sh            everything that can be built here
#   scripts/cargos.sh wasm       only the modules
#   scripts/cargos.sh test       everything, and the tests of the programs themselves
# Finished files lie in $CARGO_TARGET_DIR/cargos/built, which cargos/built points to.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\033[1mcargos:\033[0m %s\n' "$*"; }
target="${CARGO_TARGET_DIR:-$HOME/.cache/island/target}/cargos"
built="$target/built"
mkdir -p "$built"
# Replaced in one step: another clone's build may be reading it.
if [ "$(readlink cargos/built 2>/dev/null || true)" != "$built" ]; then
    ln -sfn "$built" cargos/built
fi

# A finished file takes its place whole, and only when it is another one: its hash is its name on every Island.
install_file() {
    cmp -s "$1" "$2" && return
    cp "$1" "$2.new.$$"
    chmod "${3:-644}" "$2.new.$$"
    mv "$2.new.$$" "$2"
    say "built ${2##*/} ($(($(stat -c %s "$2") / 1024)) KiB)"
}

# --- wasm modules.
wasm=wasm32-wasip1
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$wasm" ]; then
    command -v rustup >/dev/null || { say "rustc has no target $wasm and there is no rustup to bring it; no module was built." >&2; exit 1; }
    say "bringing the Rust target $wasm"
    rustup target add "$wasm"
fi
# The same bytes wherever they are built: no path of this machine in them. Our own are relative; only those of crates are not.
paths="--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
CARGO_TARGET_DIR=$target RUSTFLAGS="$paths" cargo build --quiet --locked --release --manifest-path cargos/programs/Cargo.toml \
    --target $wasm --package island-wasm-cargos
for module in "$target/$wasm"/release/wasm-*.wasm; do
    install_file "$module" "$built/${module##*/}"
done
# A file's hash beside it, so that a coordinator need not read hundreds of megabytes to start.
note_hashes() {
    for file in "$built"/*.wasm "$built"/*.tar; do
        if [ -f "$file" ] && [ ! "$file.sha256" -nt "$file" ]; then
            sha256sum "$file" | cut -d ' ' -f 1 > "$file.sha256.new.$$"
            mv "$file.sha256.new.$$" "$file.sha256"
        fi
    done
}
note_hashes
[ "${1:-all}" = wasm ] && exit

# --- Images of the container Cargos, with a static entry program; and what carries connections out of a container.
host=$(rustc -vV | sed -n 's/^host: //p')
if [[ "$host" != *-linux-gnu ]]; then
    say "images are made on Linux with glibc only; the modules are built."
    exit
fi
CARGO_TARGET_DIR=$target RUSTFLAGS="$paths -C target-feature=+crt-static" cargo build --quiet --locked --release \
    --manifest-path cargos/programs/Cargo.toml --target "$host" --package island-tools --package island-forwarder
install_file "$target/$host/release/island-forwarder" "$built/island-forwarder" 755
# What this machine lacks for making images is reported, and the rest goes on; a wrong recipe is an error.
python3 scripts/images.py cargos/images "$target/images" "$built" "$target/$host/release/island-tools" || [ $? = 3 ]
note_hashes

# --- What the programs are made of, tested where it runs.
if [ "${1:-all}" = test ]; then
    CARGO_TARGET_DIR=$target RUSTFLAGS="$paths -C target-feature=+crt-static" cargo test --quiet --locked --release \
        --manifest-path cargos/programs/Cargo.toml --target "$host" --package island-cargo --package island-tools
fi
