#!/usr/bin/env bash
# Builds the programs of the previous version, and upgrades a network of theirs to this one under load.
#   PREVIOUS=COMMIT scripts/upgrade.sh
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$(scripts/target.sh)}"
# The version that this one must work together with: the last release, or the commit that stands for it.
PREVIOUS="${PREVIOUS:-3a1f992}"

folder="$CARGO_TARGET_DIR/previous"
git rev-parse --quiet --verify "$PREVIOUS^{commit}" >/dev/null || {
    echo "upgrade: the commit $PREVIOUS is not in this clone: fetch the whole history" >&2
    exit 1
}
if [ "$(git -C "$folder/source" rev-parse HEAD 2>/dev/null)" != "$(git rev-parse "$PREVIOUS^{commit}")" ]; then
    rm -rf "$folder/source"
    git worktree prune
    git worktree add --force --detach "$folder/source" "$PREVIOUS"
fi
(cd "$folder/source" && CARGO_TARGET_DIR="$folder/target" cargo build --locked --workspace --bins)
cargo build --locked --workspace --all-targets
ISLAND_STRICT=1 ISLAND_PREVIOUS_BIN="$folder/target/debug" ISLAND_PREVIOUS_CARGOS="$folder/source/cargos" \
    cargo test --locked --workspace --test upgrade -- --nocapture --test-threads 1
