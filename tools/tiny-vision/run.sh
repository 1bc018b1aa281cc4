#!/bin/sh
# Trains and exports cargos/models/island-tiny-vision.gguf and its projector: tools/tiny-vision/run.sh [MINUTES]
# Needs python3 with venv, and 6 GB for PyTorch under $WORK, which stays outside the repository.
set -eu
minutes=${1:-12}
here=$(cd "$(dirname "$0")" && pwd)
WORK=${WORK:-/tmp/island-tiny-vision}
mkdir -p "$WORK"

if [ ! -x "$WORK/venv/bin/python" ]; then
    python3 -m venv "$WORK/venv"
    "$WORK/venv/bin/pip" install --quiet -r "$here/requirements.txt"
fi

# A thread that sleeps at a barrier costs little on an idle machine and saves much on a busy one.
export OMP_WAIT_POLICY=PASSIVE
python="$WORK/venv/bin/python"
models="$here/../../cargos/models"
look=$(awk "BEGIN { print $minutes * 0.2 }")
answer=$(awk "BEGIN { print $minutes * 0.8 }")
nice -n 10 "$python" -u "$here/train.py" --out "$WORK/out" --look "$look" --minutes "$answer"
"$python" "$here/export.py" "$WORK/out" "$models/island-tiny-vision.gguf" "$models/island-tiny-vision-mmproj.gguf"
(cd "$models" && sha256sum island-tiny-vision.gguf island-tiny-vision-mmproj.gguf)
"$python" "$here/check.py" "$models/island-tiny-vision.gguf" "$models/island-tiny-vision-mmproj.gguf" --count 100
