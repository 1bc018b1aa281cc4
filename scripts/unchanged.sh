#!/usr/bin/env bash
# Runs a command, unless it succeeded before with the same inputs, in this clone or another that shares the target folder.
#   scripts/unchanged.sh NAME INPUT... -- COMMAND [WORD...]
# An INPUT is
#   crate:PACKAGE   a package of the workspace and all of the workspace that it is built from, with the lock file and the tool chain
#   tool:PROGRAM    the version that `PROGRAM --version` prints
#   env:NAME        the value of a variable
#   anything else   a pathspec of git: files and folders, whether they are committed or not; ':!PATHSPEC' leaves some out
# Content counts, not times. A success is recorded in strict mode only, because elsewhere a command that left something out succeeds, too.
# With ISLAND_CHECK_ALL=1, outside of a git repository, and without jq or sha256sum, the command runs in any case.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1
shift
die() { echo "unchanged: $name: $*" >&2; exit 1; }

inputs=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do inputs+=("$1") && shift; done
if [ $# -lt 2 ] || [ ${#inputs[@]} = 0 ]; then die "expected INPUT... -- COMMAND"; fi
shift
if ! git rev-parse --is-inside-work-tree >/dev/null 2>&1 || ! { command -v jq && command -v sha256sum; } >/dev/null; then exec "$@"; fi
target=${CARGO_TARGET_DIR:-$(scripts/target.sh)}
stamps=$target/checked/$name
# Stamps of other branches and clones are kept, up to this number.
KEPT=50

# The folders of a package and of those that it depends on in the workspace; of these, not what only their own tests need.
crate_folders() { # PACKAGE
    cargo metadata --no-deps --format-version 1 --locked --offline | jq -re --arg name "$1" '
        .workspace_root as $root
        | [.packages[] | {name, folder: (.manifest_path | rtrimstr("/Cargo.toml")), dependencies}] as $packages
        | def of($found; $tests): [$found[] as $folder | $packages[] | select(.folder == $folder) | .dependencies[]
            | select(.path and ($tests or .kind != "dev")) | .path] + $found | unique;
        def closure: of(.; false) as $more | if $more == . then . else $more | closure end;
        [$packages[] | select(.name == $name) | .folder]
        | if . == [] then error("no package \($name)") else of(.; true) | closure | .[] | ltrimstr($root + "/") end'
}

specs=() versions=()
for input in "${inputs[@]}"; do
    case $input in
        crate:*)
            folders=$(crate_folders "${input#crate:}") || die "cannot determine what ${input#crate:} is built from"
            while IFS= read -r folder; do specs+=("$folder"); done <<<"$folders"
            specs+=(Cargo.toml Cargo.lock .cargo rust-toolchain.toml)
            ;;
        tool:*) versions+=("$input $("${input#tool:}" --version 2>/dev/null || echo missing)") ;;
        env:*) variable=${input#env:} && versions+=("$input ${!variable:-}") ;;
        *) specs+=("$input") ;;
    esac
done
names() { git ls-files -z --cached --others --exclude-standard -- "$@"; }
# A folder that was renamed must not drop out of the inputs.
for spec in "${specs[@]}"; do
    case $spec in :!*) continue ;; esac
    [ -n "$(names "$spec" | tr '\0' '\n' | head -c 1)" ] || die "$spec contains no file"
done

# Type, mode, name and content of every file; a file that is deleted has none.
contents() {
    local file files=()
    while IFS= read -r -d '' file; do
        if [ -L "$file" ]; then
            printf 'link %s %s\n' "$file" "$(readlink "$file")"
        elif [ -f "$file" ]; then
            [ ! -x "$file" ] || printf 'program %s\n' "$file"
            files+=("$file")
        fi
    done < <(names "${specs[@]}" | LC_ALL=C sort -zu)
    [ ${#files[@]} = 0 ] || printf '%s\0' "${files[@]}" | xargs -0 sha256sum
}
# The system and the compiler decide on everything that is built; this script, on what counts.
fingerprint() {
    {
        printf '%s\n' "$@" "${versions[@]+"${versions[@]}"}"
        uname -sm
        rustc -vV 2>/dev/null || true
        cat /etc/os-release 2>/dev/null || true
        sha256sum <scripts/unchanged.sh
        contents
    } | sha256sum | cut -d ' ' -f 1
}

before=$(fingerprint "$@")
if [ "${ISLAND_CHECK_ALL:-0}" = 0 ] && [ -f "$stamps/$before" ]; then
    echo "$name: its inputs are those with which it passed before (make check-all runs it in any case)"
    exit
fi
"$@"
# What was changed while it ran was perhaps not seen.
if [ "${ISLAND_STRICT:-0}" != 0 ] && [ "$(fingerprint "$@")" = "$before" ]; then
    mkdir -p "$stamps"
    : >"$stamps/$before"
    # Names are hashes.
    # shellcheck disable=SC2012
    ls -t "$stamps" | tail -n "+$((KEPT + 1))" | while read -r old; do rm -f "$stamps/$old"; done
fi
