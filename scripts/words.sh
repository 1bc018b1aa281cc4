#!/usr/bin/env bash
# Wording (scripts/words.py) and spelling (typos, settings in _typos.toml). Both run offline.
#   scripts/words.sh             everything but scripts/words.exclude
#   scripts/words.sh FILE...     these files
# Where typos is not installed, spelling is not checked; with ISLAND_STRICT=1 that is an error.
set -euo pipefail
cd "$(dirname "$0")/.."

status=0
python3 scripts/words.py "$@" || status=1
# cargo install --locked typos-cli --version 1.52.0, or pip install typos==1.52.0
if command -v typos >/dev/null; then
    if [ $# -gt 0 ]; then files=("$@"); else files=(.); fi
    # Without hidden folders and what git ignores; --force-exclude holds for files that are named, too.
    typos --force-exclude --format brief "${files[@]}" || status=1
elif [ "${ISLAND_STRICT:-0}" != 0 ]; then
    echo "words: typos is missing; install it with: cargo install --locked typos-cli" >&2
    status=1
else
    echo "words: typos is not installed, spelling was not checked"
fi
exit "$status"
