#!/usr/bin/env bash
# Prints the folder that everything is built in, and makes `target` lead there, so that plain `cargo` and `make` share one build.
# Clones share it, too: a second clone builds only what differs. A `target` folder that is there already is used as it is.
#   scripts/target.sh built     records the files that everything was built from, after a build of everything
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -d target ] && [ ! -L target ]; then
    echo "$PWD/target"
    exit
fi
shared="$HOME/.cache/island/target"
mkdir -p "$shared"
[ "$(readlink target 2>/dev/null || true)" = "$shared" ] || ln -sfn "$shared" target

# Those of the clone; of an archive of the source without git, all.
names() { git ls-files -z 2>/dev/null || find . \( -path ./.git -o -path ./.tools \) -prune -o -type f -printf '%P\0'; }
files() { names | while IFS= read -r -d '' file; do [ ! -f "$file" ] || printf '%s\0' "$file"; done; }
hashes() { files | xargs -0 sha256sum; }
# What was built since.
newer() { find "$shared" -maxdepth 4 -name .fingerprint -prune -print0 | xargs -0 -I{} find {} -type f -newer "$shared/.built" -print -quit; }

if [ "${1:-}" = built ]; then
    paste -d ' ' <(files | xargs -0 stat -c %.9Y) <(hashes) >"$shared/.built.$$"
    mv "$shared/.built.$$" "$shared/.built"
    # Also if `CARGO_TARGET_DIR` named the folder so far: a new clone at the path of an earlier one is not the one that built.
    echo "$PWD" >"$shared/.clone"
    exit
fi

# Cargo names artifacts by paths within the workspace and compares times, so it takes what another clone built last for ours. A file that
# is as that clone's last build of everything found it gets the time it had there, unless something was built since. The others are new,
# and so are those that put the path of their clone into what is built.
if [ "$(cat "$shared/.clone" 2>/dev/null || true)" != "$PWD" ]; then
    files | xargs -0 touch
    if [ -f "$shared/.built" ] && [ -z "$(newer)" ]; then
        awk 'NR == FNR { time = $1; sub(/^[^ ]+ /, ""); times[$0] = time; next } $0 in times { printf "%s\t%s\n", times[$0], substr($0, 67) }' \
            "$shared/.built" <(hashes) | while IFS=$'\t' read -r time file; do touch -d "@$time" "$file"; done
        files | { xargs -0 grep -lZE --include='*.rs' '^[^/]*env!\("CARGO_MANIFEST_DIR"\)' || true; } | xargs -0 --no-run-if-empty touch
    fi
    echo "$PWD" >"$shared/.clone"
fi
echo "$shared"
