#!/usr/bin/env bash
# Links the programs that were built into a folder of programs.
#   scripts/install.sh PREFIX        into PREFIX/bin
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$(scripts/target.sh)}"

bin="$1/bin"
mkdir -p "$bin"
for program in island island-agent island-coordinator; do
    ln -sfn "$CARGO_TARGET_DIR/debug/$program" "$bin/$program"
    echo "install: $bin/$program"
done
case ":$PATH:" in
    *":$bin:"*) ;;
    *) echo "install: $bin is not on the search path; add it with:  export PATH=\"$bin:\$PATH\"" ;;
esac
