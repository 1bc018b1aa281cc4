#!/bin/sh
# Asks transformers.js what it answers to the fixtures' inputs: tools/onnx-fixtures/second-opinion.sh [--record] [FAMILY...]
# Needs node 20 with npm, and 500 MB for its packages under $WORK, which stays outside the repository.
set -eu
here=$(cd "$(dirname "$0")" && pwd)/second-opinion
WORK=${WORK:-${TMPDIR:-/tmp}/island-second-opinion}
mkdir -p "$WORK"

if ! cmp -s "$here/package-lock.json" "$WORK/stamp"; then
    cp "$here/package.json" "$here/package-lock.json" "$WORK/"
    # No scripts: the packages hold what they need, and one of them would fetch libraries for GPUs.
    npm ci --prefix "$WORK" --silent --no-audit --no-fund --ignore-scripts
    cp "$here/package-lock.json" "$WORK/stamp"
fi

# Modules find packages beside themselves alone, so the programs stand beside the packages.
cp "$here"/*.mjs "$WORK/"
export SECOND_OPINION_FIXTURES="$here/../../../runtimes/onnx/tests/fixtures" SECOND_OPINION_VERDICTS="$here/verdicts.json"
exec nice -n 10 node "$WORK/second_opinion.mjs" "$@"
