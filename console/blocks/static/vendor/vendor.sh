#!/usr/bin/env bash
# Fetches the pinned scripts of others, or checks those that are here.
#   vendor.sh         fetches, then checks
#   vendor.sh check   checks
set -euo pipefail
cd "$(dirname "$0")"
HTMX=4.0.1
UPLOT=1.6.32

if [ "${1:-fetch}" != check ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    unpack() {
        npm pack --silent --pack-destination "$folder" "$1@$2" >/dev/null
        mkdir "$folder/$1"
        tar -xzf "$folder/$1-$2.tgz" -C "$folder/$1" --strip-components=1
    }
    unpack htmx.org "$HTMX"
    unpack uplot "$UPLOT"
    cp "$folder/htmx.org/dist/htmx.min.js" .
    cp "$folder/htmx.org/LICENSE" htmx.LICENSE
    cp "$folder/uplot/dist/uPlot.iife.min.js" "$folder/uplot/dist/uPlot.min.css" .
    cp "$folder/uplot/LICENSE" uPlot.LICENSE
fi
sha256sum --check --quiet SHA256SUMS
