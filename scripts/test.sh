#!/usr/bin/env bash
# Runs every test of the workspace, and ends with the numbers of those that passed, failed and were left out (scripts/test.py).
# With ISLAND_STRICT=1 a test that is left out fails.
set -euo pipefail
exec python3 "$(dirname "$0")/test.py"
