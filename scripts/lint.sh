#!/usr/bin/env bash
# Clippy of both workspaces, the wording of documents, dependency rules, unused dependencies, and the exposure of the units.
# A tool that is missing is an error in strict mode, which `make check` sets, and a note otherwise.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$(scripts/target.sh)}"

export PATH="$CARGO_TARGET_DIR/tools/bin:$PATH"
has() {
    command -v "$1" >/dev/null && return
    if [ "${ISLAND_STRICT:-0}" != 0 ]; then echo "lint: $1 is missing; scripts/setup.sh check installs it" >&2; exit 1; fi
    echo "lint: $1 is not installed, its rules were not checked (scripts/setup.sh check installs it)"
    return 1
}

scripts/words.sh
# The scripts of others are those of the pinned versions.
console/blocks/static/vendor/vendor.sh check
cargo clippy --locked --workspace --all-targets -- -D warnings
CARGO_TARGET_DIR="$CARGO_TARGET_DIR/cargos" cargo clippy --locked --quiet --manifest-path cargos/programs/Cargo.toml --workspace --all-targets -- -D warnings
# Advisories come from a database on the network, which `cargo deny check advisories` fetches by hand.
has cargo-deny && cargo deny --locked check bans licenses sources
has cargo-deny && cargo deny --locked --manifest-path cargos/programs/Cargo.toml check bans licenses sources
has cargo-machete && cargo machete
if has systemd-analyze; then
    for unit in island-agent island-coordinator island-nats; do
        # The threshold is ten times the exposure: below 2.0, with GPUs allowed.
        report=$(systemd-analyze security --offline=true --threshold=20 "systemd/$unit.service") ||
            { echo "$report"; echo "lint: $unit.service is exposed too much" >&2; exit 1; }
    done
fi
