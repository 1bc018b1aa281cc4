#!/usr/bin/env bash
# Debian packages of what is built: island-agent, island-update, island-coordinator, island-cargos, island-nats and island (the command line), into target/deb.
#   packaging/debian/build.sh cuda                 the package island-agent-cuda instead, an hour and a half on two cores
#   PROFILE=release packaging/debian/build.sh      optimized for size and speed; `dev` packages what the tests ran
set -euo pipefail
# The services read what is in the packages, whatever the umask of the person who builds them.
umask 022
cd "$(dirname "$0")/../.."

profile=${PROFILE:-release}
target=${CARGO_TARGET_DIR:-$HOME/.cache/island/target}
built=$target/$([ "$profile" = dev ] && echo debug || echo "$profile")
resident=$target/$([ "$profile" = dev ] && echo debug || echo resident)
out=$target/deb
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
arch=$(dpkg --print-architecture)
mkdir -p "$out"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

say() { printf '\033[1mdeb:\033[0m %s\n' "$*"; }

# put FILE FOLDER [MODE]: symbols stay out of what runs.
put() {
    install -D -m "${3:-0755}" "$1" "$2/$(basename "$1")"
    if [ "$(head -c 4 "$1" | tail -c 3)" = ELF ]; then strip --strip-unneeded "$2/$(basename "$1")"; fi
}

manual() { # PACKAGE PROGRAM GUIDE
    mkdir -p "$stage/$1/usr/share/man/man8"
    python3 packaging/debian/manual.py "$2" "/usr/share/doc/$1/$3" | gzip -9n >"$stage/$1/usr/share/man/man8/$(basename "$2").8.gz"
}

control() { # PACKAGE DEPENDS DESCRIPTION [RECOMMENDS]
    local root=$stage/$1
    mkdir -p "$root/DEBIAN" "$root/usr/share/doc/$1"
    install -m 0644 LICENSE-APACHE "$root/usr/share/doc/$1/copyright"
    cat >"$root/DEBIAN/control" <<CONTROL
Package: $1
Version: $version
Architecture: $arch
Section: net
Priority: optional
Maintainer: The Island developers <packages@island.invalid>
Depends: $2
${4:+Recommends: $4
}Description: $3
CONTROL
    if [ -d "$root/etc" ]; then (cd "$root" && find etc -type f -printf '/%p\n') >"$root/DEBIAN/conffiles"; fi
    for script in preinst postinst prerm postrm; do
        if [ -f "packaging/debian/$1.$script" ]; then install -m 0755 "packaging/debian/$1.$script" "$root/DEBIAN/$script"; fi
    done
    (cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' md5sum) >"$root/DEBIAN/md5sums"
    # Documents and tests name packages without their version.
    rm -f "$out/$1"_*_"$arch.deb"
    # The tests' packages are unpacked at once.
    local compression=()
    [ "$profile" != dev ] || compression=(-Zgzip -z1)
    dpkg-deb --root-owner-group "${compression[@]}" --build "$root" "$out/$1_${version}_$arch.deb" >/dev/null
    say "$out/$1_${version}_$arch.deb ($(du -h "$out/$1_${version}_$arch.deb" | cut -f1))"
}

# A package of its own, because it is larger than all others together and of use with one maker's GPUs alone.
if [ "${1:-}" = cuda ]; then
    scripts/cuda.sh module "$stage/island-agent-cuda/usr/lib/island/backends/cuda"
    # Its libraries are in a part of Debian that not every system has, or NVIDIA's own: without them the agent uses Vulkan and reports it.
    # Workers use no module of another release, so an update of the agent alone, by island-update, leaves it on Vulkan until both are the same again.
    control island-agent-cuda "island-agent (>= $version)" "CUDA for an Island's language models
 With this module llama.cpp runs on NVIDIA GPUs from Turing on through CUDA
 instead of Vulkan. Needs a driver of version 525 or later and the libraries
 of CUDA 12." "libcublas12 (>= 12.4), libcudart12 (>= 12.4)"
    exit
fi

agent=$stage/island-agent
put "$resident/island-agent" "$agent/usr/bin"
for worker in "$built"/island-worker-*; do
    case $worker in *.d|*simulated) ;; *) put "$worker" "$agent/usr/lib/island" ;; esac
done
# By the names under which the workers load them.
for library in "$built"/libggml*.so.0 "$built"/libllama*.so.0 "$built"/libmtmd.so.0; do put "$library" "$agent/usr/lib/island" 0644; done
for backend in "$built"/backends/*.so; do put "$backend" "$agent/usr/lib/island/backends" 0644; done
scripts/vulkan.sh module "$agent/usr/lib/island/backends/vulkan"
if [ -f .tools/lib/libonnxruntime.so ]; then
    library=$(readlink -f .tools/lib/libonnxruntime.so)
    put "$library" "$agent/usr/lib/island" 0644
    # Its version is in the name of the file alone.
    ln -s "$(basename "$library")" "$agent/usr/lib/island/libonnxruntime.so"
    put .tools/lib/libonnxruntime_providers_webgpu.so "$agent/usr/lib/island" 0644
fi
[ -f "$target/cargos/built/island-forwarder" ] && put "$target/cargos/built/island-forwarder" "$agent/usr/lib/island"
install -D -m 0644 systemd/island-agent.service "$agent/usr/lib/systemd/system/island-agent.service"
install -D -m 0644 systemd/island-agent.sysusers "$agent/usr/lib/sysusers.d/island-agent.conf"
install -D -m 0644 packaging/debian/settings/agent.toml "$agent/etc/island/agent.toml"
install -D -m 0644 docs/owners.md "$agent/usr/share/doc/island-agent/owners.md"
install -D -m 0644 docs/security.md "$agent/usr/share/doc/island-agent/security.md"
install -D -m 0644 docs/gpu.md "$agent/usr/share/doc/island-agent/gpu.md"
manual island-agent "$resident/island-agent" owners.md
control island-agent "libc6 (>= 2.36), libgcc-s1, libstdc++6, libgomp1, systemd, ca-certificates" "makes this machine an Island: runs jobs of an Island network
 The agent joins a coordinator, reports the load of the machine, and runs other
 people's jobs in sandboxed workers, within the limits that its owner sets. It
 uses GPUs of every maker for which a Vulkan driver is installed." "libvulkan1, mesa-vulkan-drivers"

coordinator=$stage/island-coordinator
put "$built/island-coordinator" "$coordinator/usr/bin"
install -D -m 0644 systemd/island-coordinator.service "$coordinator/usr/lib/systemd/system/island-coordinator.service"
install -D -m 0644 systemd/island-coordinator.sysusers "$coordinator/usr/lib/sysusers.d/island-coordinator.conf"
install -D -m 0644 systemd/island-coordinator.tmpfiles "$coordinator/usr/lib/tmpfiles.d/island-coordinator.conf"
install -D -m 0644 packaging/debian/settings/coordinator.toml "$coordinator/etc/island/coordinator.toml"
install -D -m 0644 docs/operators.md "$coordinator/usr/share/doc/island-coordinator/operators.md"
manual island-coordinator "$built/island-coordinator" operators.md
for file in packaging/alerts/{island,prometheus}.yml packaging/dashboards/*.json; do
    install -D -m 0644 "$file" "$coordinator/usr/share/island/${file#packaging/}"
done
(cd cargos && find . -path ./programs -prune -o -path ./fixtures -prune -o -path ./images -prune -o -name '*.toml' -print0) |
    while IFS= read -r -d '' file; do install -D -m 0644 "cargos/$file" "$coordinator/usr/share/island/cargos/$file"; done
install -D -m 0644 cargos/models/island-tiny-chat.gguf "$coordinator/usr/share/island/cargos/models/island-tiny-chat.gguf"
control island-coordinator "libc6 (>= 2.36), libgcc-s1, systemd, ca-certificates" "coordinator of an Island network: jobs, catalogue, credits and market
 Consumers submit jobs over HTTP, with OpenAI-compatible chat among them;
 Islands join over NATS. Books are kept in SQLite or PostgreSQL." "island-nats, island-cargos"

# Apart from the coordinator, because the images are larger than all other packages together.
cargos=$stage/island-cargos
for file in "$target"/cargos/built/*; do
    case $file in */island-forwarder) ;; *) put "$file" "$cargos/usr/share/island/cargos/built" 0644 ;; esac
done
control island-cargos "island-coordinator (>= $version)" "programs and images of an Island network's utility Cargos
 What the Cargos of the catalogue run that are programs: WebAssembly modules
 and container images. A coordinator without them offers its models alone."

# The server that the tests ran, because releases of Debian have older ones with known vulnerabilities.
nats=$stage/island-nats
put "${ISLAND_NATS_SERVER:-.tools/bin/nats-server}" "$nats/usr/lib/island"
for unit in island-nats.service island-nats-certificate.path island-nats-certificate.service; do
    install -D -m 0644 "systemd/$unit" "$nats/usr/lib/systemd/system/$unit"
done
install -D -m 0644 systemd/island-nats.sysusers "$nats/usr/lib/sysusers.d/island-nats.conf"
install -D -m 0644 systemd/island-nats.tmpfiles "$nats/usr/lib/tmpfiles.d/island-nats.conf"
install -D -m 0644 docs/operators.md "$nats/usr/share/doc/island-nats/operators.md"
control island-nats "systemd, ca-certificates" "NATS server of an Island network
 The message fabric between the coordinators and the Islands of a network,
 with the settings that island-coordinator writes."

update=$stage/island-update
put "$built/island-update" "$update/usr/bin"
install -D -m 0644 systemd/island-update.service "$update/usr/lib/systemd/system/island-update.service"
install -D -m 0644 systemd/island-update.timer "$update/usr/lib/systemd/system/island-update.timer"
install -D -m 0644 packaging/debian/settings/update.toml "$update/etc/island/update.toml"
control island-update "libc6 (>= 2.36), libgcc-s1, ca-certificates, dpkg-repack, island-agent" "signed updates of an Island's agent, for owners who enable them
 Checks for a newer release once a day, installs it when no job runs, and
 restores the former version if the new one does not start."

client=$stage/island
put "$built/island" "$client/usr/bin"
mkdir -p "$client/usr/share/man/man1"
"$built/island" man --dir "$client/usr/share/man/man1" >/dev/null
gzip -9n "$client"/usr/share/man/man1/*.1
completion() { # SHELL FILE
    mkdir -p "$(dirname "$client/$2")"
    "$built/island" completion "$1" >"$client/$2"
}
completion bash usr/share/bash-completion/completions/island
completion zsh usr/share/zsh/vendor-completions/_island
completion fish usr/share/fish/vendor_completions.d/island.fish
control island "libc6 (>= 2.36), libgcc-s1, ca-certificates" "command line of an Island network
 Submits jobs and streams their output, chats with models, shows the
 catalogue, the market and the account, and pairs Islands."
