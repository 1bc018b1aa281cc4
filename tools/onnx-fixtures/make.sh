#!/bin/sh
# Writes runtimes/onnx/tests/fixtures: tools/onnx-fixtures/make.sh [FAMILY...]
# Needs Python 3.11 with venv and 7 GB for PyTorch under $WORK, which stays outside the repository.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
WORK=${WORK:-${TMPDIR:-/tmp}/island-onnx-fixtures}
mkdir -p "$WORK/scratch"

if [ ! -x "$WORK/venv/bin/python" ]; then
    python3 -m venv "$WORK/venv"
    "$WORK/venv/bin/pip" install --quiet -r "$here/requirements.txt"
fi

export ONNX_FIXTURES_SCRATCH="$WORK/scratch" HF_HOME="$WORK/hub" HF_HUB_OFFLINE=1 PYTHONHASHSEED=0
export TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= PYTHONDONTWRITEBYTECODE=1
exec nice -n 10 "$WORK/venv/bin/python" "$here/make.py" "$@"
