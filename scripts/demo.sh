#!/usr/bin/env bash
# Starts a network in a temporary folder, asks its model something, prints a link to its console, and stops it again: at once, or in a
# terminal when it is interrupted.
set -euo pipefail
cd "$(dirname "$0")/.."
bin="${CARGO_TARGET_DIR:-$(scripts/target.sh)}/debug"
data=$(mktemp -d)
cleanup() {
    [ -z "${network:-}" ] || { kill -TERM "$network" 2>/dev/null || true; wait "$network" 2>/dev/null || true; }
    rm -rf "$data" "$data.out"
}
trap cleanup EXIT

printf '\033[1m$ island dev\033[0m\n'
"$bin/island" dev --data-dir "$data" >"$data.out" 2>&1 &
network=$!
limit_s=${DEMO_LIMIT_S:-60}
for _ in $(seq $((limit_s * 10))); do
    [ -s "$data/dev.json" ] && break
    kill -0 "$network" 2>/dev/null || { cat "$data.out" >&2; exit 1; }
    sleep 0.1
done
if [ ! -s "$data/dev.json" ]; then
    {
        echo "The network was not ready within $limit_s s: \`island dev\` has not written $data/dev.json, which has its address and a key."
        echo "The last lines of its log:"
        tail -n 20 "$data.out"
    } >&2
    exit 1
fi
grep -m1 '^ready' "$data.out" || true
rm -f "$data.out"

read -r SERVICE_API_URL SERVICE_API_KEY < <(python3 -c '
import json, sys
info = json.load(open(sys.argv[1]))
print(info["api_url"], info["api_key"])' "$data/dev.json")
export SERVICE_API_URL SERVICE_API_KEY

ask() {
    printf '\n\033[1m$ island chat "%s"\033[0m\n' "$1"
    "$bin/island" chat --max-tokens 64 "$1"
}
ask "What is Island?"
ask "Write about a ball."
printf '\n\033[1m$ island jobs list\033[0m\n'
"$bin/island" jobs list
printf '\n\033[1m$ island account\033[0m\n'
"$bin/island" account

link=$("$bin/island" console)
cat <<TEXT

Those replies came from a small model on your own Island, through the HTTP API, NATS, an agent and a sandboxed worker.
To keep a network running:  $bin/island dev

The same in a browser, signed in by a link that works once:
  $link
TEXT
if [ -t 0 ] && [ -t 1 ]; then
    printf '\nCtrl-C stops the network.\n'
    trap 'exit 0' INT TERM
    wait "$network" || true
fi
