#!/usr/bin/env bash
# Vulkan without changing this system.
#   scripts/vulkan.sh module [FOLDER]   builds llama.cpp's Vulkan module into FOLDER; by default, where the workers of each built profile find it
#   scripts/vulkan.sh if-gpu            the same, if this machine has a GPU; without the module its models run on the processor
#   scripts/vulkan.sh software          unpacks Mesa's Vulkan on the processor, with which the tests run it, into .tools/vulkan
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$(scripts/target.sh)}"
. scripts/ggml.sh
# shellcheck disable=SC1091
. /etc/os-release

# The shader compiler of Debian 12 knows none of the extensions by which GPUs multiply matrices, its headers are too old for ggml, and its
# Mesa is too old for WebGPU.
case "${VERSION_CODENAME:-}" in
    bookworm) compiler_suite=trixie driver_suite=bookworm-backports ;;
    *) compiler_suite=- driver_suite=- ;;
esac

software() {
    local stamp library
    stamp="$driver_suite $(sha256sum scripts/packages.sh scripts/vulkan.sh | sha256sum | cut -c1-16)"
    [ "$(cat .tools/vulkan/stamp 2>/dev/null)" != "$stamp" ] || return 0
    say "unpacking Mesa's Vulkan driver for the processor into .tools/vulkan"
    rm -rf .tools/vulkan
    mkdir -p .tools/vulkan/lib
    scripts/packages.sh .tools/vulkan/root "$driver_suite" closure mesa-vulkan-drivers libvulkan1
    library=$(find "$PWD/.tools/vulkan/root" -name libvulkan_lvp.so | head -n 1)
    [ -n "$library" ] || die "mesa-vulkan-drivers contains no libvulkan_lvp.so"
    # What a process with the driver may load is this one folder.
    find "$(dirname "$library")" -maxdepth 1 -name 'lib*.so*' ! -name 'libVkLayer*' -exec cp -P {} .tools/vulkan/lib/ \;
    printf '{ "file_format_version": "1.0.0", "ICD": { "library_path": "%s", "api_version": "1.3.0" } }\n' \
        "$PWD/.tools/vulkan/lib/libvulkan_lvp.so" >.tools/vulkan/icd.json
    rm -rf .tools/vulkan/root
    echo "$stamp" >.tools/vulkan/stamp
}

module() {
    local source built
    source=$(ggml_sources)
    built=$CARGO_TARGET_DIR/modules/vulkan-$(ggml_hash "$source" "$compiler_suite")
    [ -f "$built/libggml-vulkan.so" ] || build "$source" "$built"
    ggml_install vulkan "$built" "$@"
}

build() {
    local work=$CARGO_TARGET_DIR/modules/build-vulkan folder headers
    say "building llama.cpp's Vulkan module (three minutes on two cores)"
    rm -rf "$work"
    headers=$work/headers/usr
    scripts/packages.sh "$work/headers" "$compiler_suite" files libvulkan-dev libvulkan1 spirv-headers
    # The compiler is started through the loader and with the libraries of its own release.
    scripts/packages.sh "$work/compiler" "$compiler_suite" files glslc libshaderc1 libc6 libstdc++6 libgcc-s1
    folder=$(dirname "$(find "$work/compiler" -name libc.so.6 | head -n 1)")
    printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' "$(find "$work/compiler" -name 'ld-linux-*.so.*' | head -n 1)" \
        "$folder:$work/compiler/usr/lib/$(basename "$folder")" "$work/compiler/usr/bin/glslc" >"$work/glslc"
    chmod +x "$work/glslc"
    "$work/glslc" --version >/dev/null || die "the shader compiler does not start"
    ggml_build vulkan "$1" "$work" "$2" -DGGML_VULKAN=ON -DVulkan_INCLUDE_DIR="$headers/include" \
        -DVulkan_GLSLC_EXECUTABLE="$work/glslc" \
        -DVulkan_LIBRARY="$(find "$headers/lib" -name libvulkan.so.1 | head -n 1)" \
        -DSPIRV-Headers_DIR="$(dirname "$(find "$headers" -name SPIRV-HeadersConfig.cmake | head -n 1)")"
}

# A device for rendering, or NVIDIA's control device.
if_gpu() {
    compgen -G '/dev/dri/renderD*' >/dev/null || [ -e /dev/nvidiactl ] || return 0
    # In a process of its own, whose failure is not that of this one.
    scripts/vulkan.sh module || say "the module could not be built: language models run on the processor"
}

case "${1:-}" in
    module) shift; module "$@" ;;
    if-gpu) if_gpu ;;
    software) software ;;
    *) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
