#!/usr/bin/env bash
# llama.cpp's CUDA module, for NVIDIA GPUs from Turing (2018) on: scripts/cuda.sh module [FOLDER].
#
# The compiler, CUDA 12.4, is unpacked from packages, and nothing is installed. Modules of 12.4 run with the driver of Debian 12 and of every
# later release; those of CUDA 13, which has a compiler among the Python packages, need a driver newer than Debian has. CUDA 12.4 knows GPUs
# up to Hopper; for later ones such as Blackwell, which use Vulkan if they can, the driver compiles the module's intermediate code.
#   ARCHITECTURES=86-real   builds for one generation alone: twenty minutes on two cores, where all take an hour and a half
#   JOBS=2                  compilers at a time, by default one for each processor
# A build that was interrupted is continued by the same command.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$(scripts/target.sh)}"
. scripts/ggml.sh

# Turing, Ampere, Ada, Hopper, and intermediate code for what comes later.
architectures=${ARCHITECTURES:-75-real;80-real;86-real;89-real;90-real;90-virtual}
# Debian's release with CUDA 12.4, in its part that is not free.
suite=trixie

module() {
    local source built
    source=$(ggml_sources)
    built=$CARGO_TARGET_DIR/modules/cuda-$(ggml_hash "$source" "$architectures $(cat scripts/cuda.txt)")
    [ -f "$built/libggml-cuda.so" ] || build "$source" "$built"
    ggml_install cuda "$built" "$@"
}

build() {
    # Named by the hash of all that decides the result, so that objects of an interrupted build are those of this one.
    local work=$CARGO_TARGET_DIR/modules/build-$(basename "$2")
    local toolkit=$work/toolkit
    [ -f "$work/unpacked" ] || { unpack "$1" "$work" "$toolkit"; touch "$work/unpacked"; }
    say "building llama.cpp's CUDA module for $architectures"
    ggml_build cuda "$1" "$work" "$2" -DGGML_CUDA=ON -DGGML_CUDA_NCCL=OFF -DGGML_CUDA_COMPRESSION_MODE=size \
        -DCMAKE_CUDA_RUNTIME_LIBRARY=Shared \
        -DCMAKE_CUDA_ARCHITECTURES="$architectures" -DCMAKE_CUDA_COMPILER="$toolkit/bin/nvcc" -DCUDAToolkit_ROOT="$toolkit" \
        -DCUDA_cuda_driver_LIBRARY="$toolkit/lib64/stubs/libcuda.so"
    readelf --dynamic "$2/libggml-cuda.so" | grep -q 'NEEDED.*libcuda.so.1' || { rm "$2/libggml-cuda.so"; die "the module is not linked to the driver's library"; }
}

# unpack SOURCES WORK TOOLKIT: one tree as NVIDIA's installer makes it: programs of Debian's package, headers and libraries of the wheels.
unpack() {
    local work=$2 toolkit=$3 debian=$2/debian/usr library wheel
    say "unpacking the compiler of CUDA 12.4"
    # Folders of other hashes are interrupted builds of other sources.
    rm -rf "$CARGO_TARGET_DIR"/modules/build-cuda*
    COMPONENTS="main non-free" scripts/packages.sh "$work/debian" "$suite" files nvidia-cuda-toolkit
    python3 -m pip download --quiet --no-deps --only-binary=:all: --require-hashes --platform manylinux2014_x86_64 \
        --dest "$work/wheels" -r scripts/cuda.txt
    for wheel in "$work"/wheels/*.whl; do python3 -m zipfile -e "$wheel" "$work/wheel"; done
    mkdir -p "$toolkit"/{bin,include,lib64/stubs,nvvm/bin,nvvm/libdevice}
    cp "$debian"/lib/nvidia-cuda-toolkit/bin/nvcc "$debian"/bin/{cudafe++,ptxas,fatbinary,nvlink,bin2c,cuobjdump} "$toolkit/bin/"
    cp -r "$debian/lib/nvidia-cuda-toolkit/bin/crt" "$toolkit/bin/"
    cp "$debian/lib/nvidia-cuda-toolkit/bin/cicc" "$toolkit/nvvm/bin/"
    cp "$debian"/lib/nvidia-cuda-toolkit/libdevice/* "$toolkit/nvvm/libdevice/"
    cat >"$toolkit/bin/nvcc.profile" <<'PROFILE'
TOP = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES += "-I$(TOP)/include"
LIBRARIES += "-L$(TOP)/lib64/stubs" "-L$(TOP)/lib64"
PROFILE
    cp -r "$work"/wheel/nvidia/*/include/. "$toolkit/include/"
    cp "$work"/wheel/nvidia/{cublas,cuda_runtime}/lib/lib*.so.12 "$toolkit/lib64/"
    for library in "$toolkit"/lib64/*.so.12; do ln -s "$(basename "$library")" "${library%.12}"; done
    # CMake tries the compiler with the static libraries, which no wheel contains.
    ar rc "$toolkit/lib64/libcudadevrt.a"
    echo 'INPUT(-lcudart)' >"$toolkit/lib64/libcudart_static.a"
    # The driver's library is on machines with a GPU alone. The module is linked to an empty one with the same functions.
    grep -rhoE '\bcu(Ctx|Device|Get|Mem)[A-Za-z]+' "$1/ggml/src/ggml-cuda" | sort -u | sed 's/.*/void &(void) {}/' |
        cc -shared -x c - -o "$toolkit/lib64/stubs/libcuda.so" -Wl,-soname,libcuda.so.1
    "$toolkit/bin/nvcc" --version >/dev/null || die "the compiler of CUDA does not start"
}

case "${1:-}" in
    module) shift; module "$@" ;;
    *) sed -n '2s/^# //p' "$0"; exit 2 ;;
esac
