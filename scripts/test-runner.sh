#!/usr/bin/env bash
# Runs one program of tests, for scripts/test.sh. Stories of whole processes wait for each other more than they compute, so twice as many of
# them run at a time as there are processors.
set -euo pipefail
case "${1##*/}" in
    coordinator-* | postgres-* | island-*) export RUST_TEST_THREADS="${RUST_TEST_THREADS:-$((2 * $(nproc)))}" ;;
esac
exec "$@"
