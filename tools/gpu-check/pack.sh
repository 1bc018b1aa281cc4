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
mkdir -p "$root"/{bin/backends/vulkan,sources,wheels}

scripts/vulkan.sh module "$root/bin/backends/vulkan"
for program in island island-agent island-coordinator island-worker-{llmcpp,onnx,diffusers} examples/bare_loop; do
    install -m 0755 -s "$built/$program" "$root/bin/"
done
cp "$built"/libggml*.so.0 "$built"/libllama*.so.0 "$root/bin/"
cp "$built"/backends/*.so "$root/bin/backends/"
cp .tools/bin/nats-server "$root/bin/"
# ONNX Runtime with its plugin, as the package has them.
for library in .tools/lib/*.so; do cp -L "$library" "$root/bin/"; done
find "$root/bin" -name '*.so*' -exec strip --strip-unneeded {} +
cp -r cargos "$root/cargos" && rm -rf "$root"/cargos/{built,programs,images}
cp tools/synthetic-gguf/make.py tools/gpu-check/check.py "$root/"
python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$root/wheels" gguf==0.19.0
# Compiled there for the one GPU that is there.
. scripts/ggml.sh
tar -C "$(ggml_sources)" -cf - --exclude='ggml/src/ggml-*/vulkan-shaders' ggml cmake CMakeLists.txt src include common vendor |
    tar -C "$root/sources" -xf -
if command -v dpkg-deb >/dev/null; then
    scripts/packages.sh "$stage/strace" - files strace libunwind8 && cp "$stage"/strace/usr/bin/strace "$root/bin/"
    cp "$stage"/strace/usr/lib/*/libunwind*.so.8 "$root/bin/" 2>/dev/null || true
fi
tar -C "$stage" -cf - gpu-check | xz -T0 -6 >"$file"
size=$(stat -c %s "$file")
echo "gpu-check: $file ($((size >> 20)) MiB)"
[ "$size" -le "$most" ] || { echo "gpu-check: more than $((most >> 20)) MiB" >&2; exit 1; }
