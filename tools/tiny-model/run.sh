#!/bin/sh
# Trains and exports cargos/models/island-tiny-chat.gguf: tools/tiny-model/run.sh [MINUTES]
# Needs Debian or Ubuntu (the text comes from an apt package, unpacked and not installed),
# python3 with venv, and 6 GB for PyTorch under $WORK, which stays outside the repository.
set -eu
minutes=${1:-30}
here=$(cd "$(dirname "$0")" && pwd)
WORK=${WORK:-/tmp/island-tiny-model}
mkdir -p "$WORK/deb"

if [ ! -x "$WORK/venv/bin/python" ]; then
    python3 -m venv "$WORK/venv"
    "$WORK/venv/bin/pip" install --quiet -r "$here/requirements.txt"
fi
if [ ! -d "$WORK/text" ]; then
    (cd "$WORK/deb" && apt-get download r-cran-janeaustenr)
    dpkg-deb -x "$WORK"/deb/r-cran-janeaustenr_*.deb "$WORK/text"
fi

# A thread that sleeps at a barrier, and a heap that keeps its pages, cost little on an idle
# machine and save much on a busy one.
export OMP_WAIT_POLICY=PASSIVE MALLOC_MMAP_THRESHOLD_=4000000000 MALLOC_TRIM_THRESHOLD_=16000000000
python="$WORK/venv/bin/python"
model="$here/../../cargos/models/island-tiny-chat.gguf"
nice -n 10 "$python" -u "$here/train.py" "$WORK/text/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb" \
    --out "$WORK/out" --minutes "$minutes"
"$python" "$here/export.py" "$WORK/out" "$model"
sha256sum "$model"
"$python" "$here/sample.py" "$model" "Who are you?" "Tell me about Emma." "Write about a walk."
