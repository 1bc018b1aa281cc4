#!/usr/bin/env bash
# Packs what tools/gpu-check needs on a machine with a GPU into one archive: the programs that are built, their libraries and modules,
# nats-server, the smallest Cargos, the generator of models, and ggml's sources for a CUDA module.
#   PROFILE=release tools/gpu-check/pack.sh [FILE]
set -euo pipefail
cd "$(dirname "$0")/../.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$(scripts/target.sh)}"
profile=${PROFILE:-debug}
built=$CARGO_TARGET_DIR/$profile
file=${1:-$CARGO_TARGET_DIR/gpu-check.tar.xz}
most=$((60 << 20))
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/gpu-check
mkdir -p "$root"/{bin/backends/vulkan,sources,python}

# llama_bench FROM INTO: copies llama-bench with what it links, and the processor's plainest back end, without which it does not start.
llama_bench() {
    local libraries name needed
    libraries=$(dirname "$(find "$1" -path '*/lib/*/ld-linux-*.so.2' | head -n 1)")
    mkdir -p "$2"
    cp -L "$libraries"/ld-linux-*.so.2 "$1/bin/llama-bench" "$libraries/llama/libllama-bench-impl.so" "$libraries"/ggml/*/libggml-cpu-x64.so "$2/"
    needed=1
    while [ "$needed" = 1 ]; do
        needed=0
        for name in $(readelf -d "$2"/* | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u); do
            [ ! -e "$2/$name" ] && [ -e "$libraries/$name" ] || continue
            cp -L "$libraries/$name" "$2/"
            needed=1
        done
    done
}

scripts/vulkan.sh module "$root/bin/backends/vulkan"
for program in island island-agent island-coordinator island-worker-{llmcpp,onnx,diffusers} examples/{bare_loop,worker_speed,image}; do
    install -m 0755 -s "$built/$program" "$root/bin/"
done
cp "$built"/libggml*.so.0 "$built"/libllama*.so.0 "$built"/libmtmd.so.0 "$root/bin/"
cp "$built"/backends/*.so "$root/bin/backends/"
cp .tools/bin/nats-server "$root/bin/"
# ONNX Runtime with its plugin, as the package has them.
for library in .tools/lib/*.so; do cp -L "$library" "$root/bin/"; done
find "$root/bin" -name '*.so*' -exec strip --strip-unneeded {} +
mkdir "$root/cargos"
cp -r cargos/{onnx,diffusers,fixtures} "$root/cargos/"
for fixture in onnx/tests/fixtures/{minilm,vit,depth-anything,whisper,distilbert-fp16} diffusers/tests/fixtures/sd15; do
    mkdir -p "$root/runtimes/$fixture"
    cp -r "runtimes/$fixture/model" "$root/runtimes/$fixture/"
done
cp tools/synthetic-gguf/make.py benches/diffusers/{models,peer}.py tools/gpu-check/check.py "$root/"
python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$stage/wheels" gguf==0.19.0 diffusers==0.42.1
# Unpacked, they are compressed with the rest.
for wheel in "$stage"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$root/python"; done
# Compiled there for the one GPU that is there.
. scripts/ggml.sh
tar -C "$(ggml_sources)" -cf - --exclude='ggml/src/ggml-*/vulkan-shaders' --exclude='ggml/src/ggml-'{opencl,sycl,hexagon,metal,cann,webgpu,openvino}'/*.*' ggml cmake CMakeLists.txt src include common vendor |
    tar -C "$root/sources" -xf -
if command -v dpkg-deb >/dev/null; then
    # llama.cpp's own benchmark is not among the sources that we link. Debian's has the same interface to modules; it runs with the loader and
    # the libraries of its release.
    scripts/packages.sh "$stage/bench" testing closure llama.cpp-tools
    llama_bench "$stage/bench/usr" "$root/bench"
    scripts/packages.sh "$stage/strace" - files strace libunwind8 && cp "$stage"/strace/usr/bin/strace "$root/bin/"
    cp "$stage"/strace/usr/lib/*/libunwind*.so.8 "$root/bin/" 2>/dev/null || true
fi
tar -C "$stage" -cf - gpu-check | xz -T1 --x86 --lzma2=preset=6,dict=192MiB >"$file"
size=$(stat -c %s "$file")
echo "gpu-check: $file ($((size >> 20)) MiB)"
[ "$size" -le "$most" ] || { echo "gpu-check: more than $((most >> 20)) MiB" >&2; exit 1; }
