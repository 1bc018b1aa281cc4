#!/usr/bin/env bash
# Writes the Core ML fixtures anew: make.sh [name...]. COREML_FIXTURES_WORK keeps the environment between runs.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
WORK=${COREML_FIXTURES_WORK:-/tmp/island-coreml-fixtures}
PYTHON=${PYTHON:-python3.11}

if [ ! -x "$WORK/venv/bin/python" ]; then
    mkdir -p "$WORK"
    "$PYTHON" -m venv "$WORK/venv"
    "$WORK/venv/bin/pip" install --quiet -r "$here/requirements.txt"
fi

export PYTHONHASHSEED=0 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= PYTHONDONTWRITEBYTECODE=1
exec nice -n 10 "$WORK/venv/bin/python" "$here/make.py" "$@"
