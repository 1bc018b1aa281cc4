#!/usr/bin/env bash
# Prints the folder that everything is built in, and makes `target` lead there, so that plain `cargo` and `make` share one build.
# Clones share it, too: a second clone builds only what differs. A `target` folder that is there already is used as it is.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -d target ] && [ ! -L target ]; then
    echo "$PWD/target"
    exit
fi
shared="$HOME/.cache/island/target"
mkdir -p "$shared"
[ "$(readlink target 2>/dev/null || true)" = "$shared" ] || ln -sfn "$shared" target
# Cargo names artifacts by paths within the workspace, so it takes what another clone built last for ours, with that clone's paths in it.
if [ "$(cat "$shared/.clone" 2>/dev/null || true)" != "$PWD" ]; then
    find . -path ./.git -prune -o -name '*.rs' -type f -exec touch {} +
    echo "$PWD" > "$shared/.clone"
fi
echo "$shared"
