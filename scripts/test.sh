#!/usr/bin/env bash
# Runs every test of the workspace, and ends with the numbers of those that passed, failed and were left out.
# With ISLAND_STRICT=1 a test that is left out fails.
set -euo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
cargo test --locked --workspace --no-fail-fast --config "target.'cfg(unix)'.runner = ['$PWD/scripts/test-runner.sh']" 2>&1 | tee "$log" || status=$?

sum() { # The sum of the numbers before WORD in the harness's results.
    { grep -oE "^test result: .*" "$log" || true; } | { grep -oE "[0-9]+ $1" || true; } | awk '{ sum += $1 } END { print sum + 0 }'
}
passed=$(sum passed) failed=$(sum failed) ignored=$(sum ignored)
skipped=$(grep -c '^SKIPPED ' "$log" || true)
left_out=$((ignored + skipped))
if [ "$failed" != 0 ] || [ "$status" != 0 ]; then
    printf '\nfailed:\n'
    grep -E '^(test .* FAILED|---- .* stdout ----|error: )' "$log" | sort -u || true
fi
[ "$left_out" = 0 ] || { printf '\nleft out:\n'; grep -E '^SKIPPED |\.\.\. ignored' "$log" | sort -u; }
printf '\n%s passed, %s failed, %s skipped\n' "$passed" "$failed" "$left_out"
if [ "${ISLAND_STRICT:-0}" != 0 ] && [ "$left_out" != 0 ]; then
    echo "test: nothing may be left out in strict mode" >&2
    exit 1
fi
if [ "$passed" = 0 ]; then
    echo "test: no test ran" >&2
    exit 1
fi
exit "$status"
