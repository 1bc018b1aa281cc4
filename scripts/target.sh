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
echo "$shared"
