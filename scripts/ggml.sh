# Sourced by vulkan.sh and cuda.sh: how a module of llama.cpp's ggml is built from the sources that the worker links, because module and
# worker must have the same interface. It is not built by the features of the crate, which would link the worker to the driver's library: a
# worker must start without it. Built modules are kept by the hash of their sources.
# shellcheck shell=bash

die() { printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2; exit 1; }
say() { printf '\033[1m%s:\033[0m %s\n' "$(basename "$0" .sh)" "$*"; }

# Folder of llama.cpp's sources, as the crate of the lock file contains them.
ggml_sources() {
    cargo metadata --locked --format-version 1 | python3 -c '
import json, os, sys
packages = json.load(sys.stdin)["packages"]
crate = next(package for package in packages if package["name"] == "llama-cpp-sys-2")
print(os.path.join(os.path.dirname(crate["manifest_path"]), "llama.cpp"))'
}

# ggml_hash SOURCES TEXT: of the sources, these scripts and what else decides the result.
ggml_hash() {
    { (cd "$1" && find ggml cmake CMakeLists.txt -type f -print0 | sort -z | xargs -0 sha256sum)
      sha256sum scripts/packages.sh scripts/ggml.sh "$0"; echo "$2"; } | sha256sum | cut -c1-16
}

# ggml_build NAME SOURCES WORK INTO OPTION...: builds the module NAME with CMake's options into the folder INTO.
ggml_build() {
    local name=$1 source=$2 work=$3 into=$4
    shift 4
    cmake -S "$source" -B "$work/cmake" -DCMAKE_BUILD_TYPE=Release -DCMAKE_SKIP_BUILD_RPATH=ON -DBUILD_SHARED_LIBS=ON \
        -DGGML_BACKEND_DL=ON -DGGML_NATIVE=OFF -DGGML_CPU=OFF -DGGML_OPENMP=OFF -DGGML_CCACHE=OFF \
        -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF \
        -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_COMMON=OFF "$@" >"$work/configure.log" 2>&1 ||
        { tail -n 20 "$work/configure.log" >&2; die "cmake failed: $work/configure.log"; }
    cmake --build "$work/cmake" --target "ggml-$name" --parallel "${JOBS:-$(nproc)}" >"$work/build.log" 2>&1 ||
        { tail -n 20 "$work/build.log" >&2; die "the build failed: $work/build.log"; }
    strip --strip-unneeded "$work/cmake/bin/libggml-$name.so"
    mkdir -p "$into"
    install -m 0644 "$work/cmake/bin/libggml-$name.so" "$into/new"
    mv "$into/new" "$into/libggml-$name.so"
    rm -rf "$work"
}

# ggml_install NAME BUILT [FOLDER]: copies the module into FOLDER, by default to where the workers of each built profile find it. The version of its
# sources lies beside it: workers use no module of other sources, whose structures could differ.
ggml_install() {
    local module=$2/libggml-$1.so version backends folder folders=()
    version=$(sed -n '/^name = "llama-cpp-sys-2"$/{n;s/^version = "\(.*\)"$/\1/p}' Cargo.lock)
    [ -n "$version" ] || die "Cargo.lock contains no llama-cpp-sys-2"
    if [ $# -gt 2 ]; then folders=("$3"); else
        for backends in "$CARGO_TARGET_DIR"/*/backends; do [ ! -d "$backends" ] || folders+=("$backends/$1"); done
    fi
    for folder in "${folders[@]}"; do
        cmp -s "$module" "$folder/libggml-$1.so" || install -D -m 0644 "$module" "$folder/libggml-$1.so"
        echo "$version" >"$folder/version"
    done
}
