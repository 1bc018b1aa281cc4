#!/usr/bin/env bash
# Checks on any system that what runs on macOS still compiles: the types of the agent, the Core ML worker and all that is in them.
# Nothing is linked and no SDK is needed. Skips, and reports why, where the standard library for macOS cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."

target=aarch64-apple-darwin
say() { printf '\033[1mmacos:\033[0m %s\n' "$*"; }
# Leaves the check out; in strict mode that is an error.
skip() {
    echo "SKIPPED what runs on macOS alone: $*" >&2
    [ "${ISLAND_STRICT:-0}" = 0 ]
    exit
}

if [ "$(uname -s)" = Darwin ]; then
    say "this is macOS: the build itself checks it"
    exit 0
fi
if ! command -v rustup >/dev/null; then
    skip "rustup is not installed, so there is no standard library for $target"
fi
if ! rustup target list --installed | grep -qx "$target"; then
    say "fetching the standard library for $target"
    if ! timeout 300 rustup target add "$target"; then
        skip "rustup cannot fetch it"
    fi
fi
if ! cargo fetch --locked --quiet --target "$target"; then
    skip "cargo cannot fetch what the agent and the Core ML worker need on macOS"
fi
# Types need no objects: the C parts of dependencies are "compiled" by a program that does nothing, and no SDK is looked for.
say "checking the agent and the Core ML worker for $target"
CC_aarch64_apple_darwin=true AR_aarch64_apple_darwin=true SDKROOT=/usr \
    cargo check --locked -p island-agent -p island-runtimes-coreml --all-targets --target "$target"
