#!/usr/bin/env bash
# Takes pictures of every page of the console in both themes and two widths, in a network of its own, for people to look at.
#   scripts/console-shots.sh [FOLDER]   into target/console-shots, or FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
bin="${CARGO_TARGET_DIR:-$(scripts/target.sh)}/debug"
out=${1:-$bin/../console-shots}
data=$(mktemp -d)
cleanup() {
    [ -z "${network:-}" ] || { kill -TERM "$network" 2>/dev/null || true; wait "$network" 2>/dev/null || true; }
    rm -rf "$data"
}
trap cleanup EXIT

# The page of its Island is shot as well.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
ISLAND_AGENT_MEASURE=false ISLAND_AGENT_PAGE__PORT=$port "$bin/island" dev --fixtures --no-limits --data-dir "$data" >"$data/out" 2>&1 &
network=$!
for _ in $(seq 600); do
    [ -s "$data/dev.json" ] && break
    kill -0 "$network" 2>/dev/null || { cat "$data/out" >&2; exit 1; }
    sleep 0.1
done
ISLAND_PAGE=http://127.0.0.1:$port PYTHONDONTWRITEBYTECODE=1 .tools/venv/bin/python integration/console/shots.py "$data" "$out"
echo "console-shots: $(ls "$out" | wc -l) pictures in $(cd "$out" && pwd)"
