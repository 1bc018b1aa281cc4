#!/usr/bin/env bash
# Runs one program of tests, for scripts/test.py, with ISLAND_TEST_SHARE processors, by default all. Stories of whole processes wait for each
# other more than they compute, so twice as many of them run at a time.
set -euo pipefail
share=${ISLAND_TEST_SHARE:-$(nproc)}
case "${1##*/}" in
    coordinator-* | postgres-* | island-*) share=$((2 * share)) ;;
esac
export RUST_TEST_THREADS="${RUST_TEST_THREADS:-$share}"
exec "$@"
