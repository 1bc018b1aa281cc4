#!/bin/sh
# Writes runtimes/diffusers/tests/fixtures: tools/diffusers-fixtures/make.sh [NAME...]
# Needs Python 3.11 with venv and 7 GB for PyTorch under $WORK, which stays outside the repository.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
WORK=${WORK:-${TMPDIR:-/tmp}/island-diffusers-fixtures}
mkdir -p "$WORK"

if [ ! -x "$WORK/venv/bin/python" ]; then
    python3 -m venv "$WORK/venv"
    "$WORK/venv/bin/pip" install --quiet -r "$here/requirements.txt"
fi

export HF_HOME="$WORK/hub" HF_HUB_OFFLINE=1 PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1
export TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=2 CUDA_VISIBLE_DEVICES=
exec nice -n 10 "$WORK/venv/bin/python" "$here/make.py" "$@"
