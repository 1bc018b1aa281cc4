#!/usr/bin/env bash
# Unpacks what build.sh made and checks that everything is in it that an Island and a coordinator need, and nothing that ties them to one maker's GPUs.
#   PROFILE=dev packaging/debian/contents.sh     packages what the tests ran first, and checks that
set -euo pipefail
cd "$(dirname "$0")/../.."

target=${CARGO_TARGET_DIR:-$HOME/.cache/island/target}
if ! command -v dpkg-deb >/dev/null; then
    echo "SKIPPED the content of the Debian packages: dpkg-deb is not installed" >&2
    [ "${ISLAND_STRICT:-0}" = 0 ]
    exit
fi
if [ "${PROFILE:-}" = dev ]; then
    # After an earlier version, and by a person whose files nobody else may read.
    mkdir -p "$target/deb"
    touch "$target/deb/island_0.0.1_$(dpkg --print-architecture).deb"
    (umask 077 && packaging/debian/build.sh)
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() { echo "contents: $*" >&2; failures=$((failures + 1)); }
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
for package in island-agent island-coordinator island-cargos island-nats island-update island; do
    dpkg-deb -x "$target/deb/${package}_${version}_$(dpkg --print-architecture).deb" "$work/$package"
done
agent=$work/island-agent coordinator=$work/island-coordinator
for package in "$target"/deb/island_*.deb; do
    case $package in *"/island_${version}_"*) ;; *) fail "the former $package is still there, which island_*.deb means as well" ;; esac
done
closed=$(find "$work"/*/ \( -type d ! -perm -0555 -o -type f ! -perm -0444 \) -print)
[ -z "$closed" ] || fail "the services cannot read $closed"

# --- The agent: every engine, and what it loads at run time.
for engine in container coreml diffusers llmcpp onnx wasm; do
    [ -x "$agent/usr/lib/island/island-worker-$engine" ] || fail "island-agent lacks the engine $engine"
done
for file in backends/vulkan/{libggml-vulkan.so,version} libonnxruntime.so libonnxruntime_providers_webgpu.so island-forwarder; do
    [ -f "$agent/usr/lib/island/$file" ] || fail "island-agent lacks $file"
done
compgen -G "$agent/usr/lib/island/backends/libggml-cpu*.so" >/dev/null || fail "island-agent has no module for the processor"
[ ! -e "$agent/usr/lib/island/island-worker-simulated" ] || fail "island-agent contains the engine of the tests"

# --- Programs start on machines without GPUs: a driver is loaded by a module alone, and libraries are found in the package.
while IFS= read -r -d '' file; do
    [ "$(head -c 4 "$file" | tail -c 3 | tr -d '\0')" = ELF ] || continue
    case $file in */backends/vulkan/*) continue ;; esac
    if readelf -d "$file" | grep -qE 'NEEDED.*lib(vulkan|cuda|cudart|cublas|nvidia|hip|OpenCL)'; then fail "${file#"$work/"} is linked to a GPU's libraries"; fi
    # Libraries are loaded by programs that have loaded the others.
    case $file in *.so*) folder=$agent/usr/lib/island ;; *) folder= ;; esac
    libraries=$(LD_LIBRARY_PATH=$folder ldd "$file" 2>/dev/null || true)
    missing=$(grep 'not found' <<<"$libraries" || true)
    [ -z "$missing" ] || fail "${file#"$work/"} does not find: $missing"
    outside=$(grep -oE "=> ($PWD|$target|$HOME)/[^ ]*" <<<"$libraries" || true)
    [ -z "$outside" ] || fail "${file#"$work/"} uses libraries outside of its package: $outside"
done < <(find "$work" -type f -print0)

# --- The catalogue: every Cargo but those of the tests.
cargos() { (cd "$1" && find . \( -path ./programs -o -path ./fixtures -o -path ./images -o -path ./built \) -prune -o -name '*.toml' -print | LC_ALL=C sort); }
diff <(cargos cargos) <(cargos "$coordinator/usr/share/island/cargos") >&2 || fail "island-coordinator lacks Cargos of the catalogue"

# --- The programs have their manuals, the command line completions, and every unit a document that is installed.
for file in man/man1/island.1.gz man/man1/island-jobs-stream.1.gz bash-completion/completions/island zsh/vendor-completions/_island fish/vendor_completions.d/island.fish; do
    [ -s "$work/island/usr/share/$file" ] || fail "island lacks $file"
done
for section in 'island-agent enroll' 'island-coordinator admin account create' 'island-coordinator init'; do
    pages=$work/${section%% *}/usr/share/man/man8/${section%% *}.8.gz
    [ -s "$pages" ] && zcat "$pages" | sed 's/\\-/-/g' | grep -x "\.SH $section" >/dev/null || fail "${section%% *} has no manual of \`$section\`"
done
while IFS=: read -r unit document; do
    for address in $document; do
        [ -f "$(compgen -G "$work/*/${address#file:///}" | head -1)" ] || fail "$unit names $address, which no package contains"
    done
done < <(grep -HoP '(?<=^Documentation=).*' systemd/*.service systemd/*.timer systemd/*.path)

# --- What operators watch a network with.
for file in packaging/alerts/{island,prometheus}.yml packaging/dashboards/*.json; do
    cmp -s "$file" "$coordinator/usr/share/island/${file#packaging/}" || fail "island-coordinator lacks $file"
done

# --- The settings that come with the packages are valid, as they are and with every example in them.
check() { # PROGRAM FILE
    "$1" --config "$2" config check >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "$2 is invalid"; }
}
ISLAND_AGENT_WORKERS__BIN_DIR=$agent/usr/lib/island check "$agent/usr/bin/island-agent" "$agent/etc/island/agent.toml"
ISLAND_COORDINATOR_CATALOGUE__DIR=$coordinator/usr/share/island/cargos check "$coordinator/usr/bin/island-coordinator" "$coordinator/etc/island/coordinator.toml"

# --- Units name programs that the packages contain. One that may be missing is marked by a dash.
for package in island-agent island-coordinator island-nats island-update; do
    for unit in "$work/$package"/usr/lib/systemd/system/*.service; do
        while read -r program; do
            [ -x "$work/$package$program" ] || fail "$(basename "$unit") starts $program, which $package does not contain"
        done < <(sed -n 's/^ExecStart[A-Za-z]*=[@:+!]*\(\/[^ ]*\).*/\1/p' "$unit")
    done
done

# --- Every unit is in a package, and a path or a timer has the service of its name beside it.
for unit in systemd/*.service systemd/*.timer systemd/*.path; do
    installed=$(compgen -G "$work/*/usr/lib/systemd/system/$(basename "$unit")" | head -1) || true
    [ -n "$installed" ] || { fail "no package contains $unit"; continue; }
    cmp -s "$unit" "$installed" || fail "$installed is not $unit"
    case $unit in *.path|*.timer) [ -f "${installed%.*}.service" ] || fail "$unit starts ${installed%.*}.service, which its package does not contain" ;; esac
done

# --- What the packages' scripts make systemd do, where all units are disabled. An upgrade leaves them so, and a removed package leaves no program running.
mkdir "$work/stubs" "$work/etc"
for program in systemctl systemd-sysusers systemd-tmpfiles; do
    printf '#!/bin/sh\necho "%s $*" >>"$CALLS"\n[ "$1 $2" != "--quiet is-enabled" ] || [ -n "${ENABLED:-}" ]\n' "$program" >"$work/stubs/$program"
    chmod 0755 "$work/stubs/$program"
done
calls() { # PACKAGE SCRIPT ARGUMENT...
    local script=packaging/debian/$1.$2
    shift 2
    : >"$work/calls"
    [ ! -f "$script" ] || sed "s#/run/systemd/system#${STOPPED:+$work/none}/#; s#/run/island#$work/run#g; s#/etc/island#$work/etc#g" "$script" | CALLS=$work/calls PATH=$work/stubs:$PATH sh -s -- "$@" >/dev/null
    cat "$work/calls"
}
for package in island-agent island-coordinator island-nats; do
    upgraded=$(calls "$package" postinst configure 0.0.1)
    ! grep -qE ' (enable|restart) ' <<<"$upgraded" || fail "an upgrade of $package starts or enables what is disabled: $upgraded"
    grep -q " try-restart .*$package.service" <<<"$upgraded" || fail "an upgrade of $package leaves its former program running: $upgraded"
    calls "$package" prerm remove | grep -q " stop .*$package.service" || fail "$package.service goes on without its package"
done
for package in island-agent island-nats; do
    calls "$package" postinst configure '' | grep -q " enable $package.service" || fail "$package.service is not enabled"
    # In an image that is built, systemd does not run: what boots from it has the service.
    image=$(STOPPED=yes calls "$package" postinst configure '')
    grep -q " enable $package.service" <<<"$image" || fail "$package.service is not enabled where systemd does not run"
    ! grep -qE ' (daemon-reload|restart|try-restart)( |$)' <<<"$image" || fail "$package needs a systemd that runs: $image"
    ! STOPPED=yes calls "$package" postinst configure 0.0.1 | grep -q ' enable ' || fail "an upgrade of $package enables what is disabled"
done
# A service that was removed with its package goes on when the package is back, where it is still enabled; an upgrade starts none that is stopped.
for package in island-coordinator island-nats; do
    for enabled in '' yes; do
        for action in install upgrade; do
            calls "$package" preinst "$action" 0.0.1 >/dev/null
            starts=$(ENABLED=$enabled calls "$package" postinst configure 0.0.1 | grep -c " restart .*$package.service" || true)
            expected=$([ "$enabled $action" = "yes install" ] && echo 1 || echo 0)
            [ "$starts" = "$expected" ] || fail "$package.service, enabled: ${enabled:-no}, after $action: started $starts times, not $expected"
        done
    done
done
# Purging leaves no package that an update downloaded, and no timer.
mkdir -p "$work/state/island-update" "$work/etc/systemd/system/timers.target.wants"
touch "$work/state/island-update/record.json" "$work/etc/systemd/system/timers.target.wants/island-update.timer"
: >"$work/calls"
if [ -f packaging/debian/island-update.postrm ]; then
    sed "s#/run/systemd/system#/#; s#/etc/systemd#$work/etc/systemd#g; s#/var/lib#$work/state#g" packaging/debian/island-update.postrm |
        CALLS=$work/calls PATH=$work/stubs:$PATH sh -s -- purge
fi
[ ! -e "$work/state/island-update" ] || fail "purging island-update leaves its packages"
[ ! -e "$work/etc/systemd/system/timers.target.wants/island-update.timer" ] || fail "purging island-update leaves its timer enabled"
# A migration that takes minutes must not count as a failed start.
grep -q '^TimeoutStartSec=1h$' systemd/island-coordinator.service || fail "the coordinator has no time to migrate"
# `drain_min` may be hours: a run that is ended before would install nothing, and not record that it waits.
grep -q '^TimeoutStartSec=infinity$' systemd/island-update.service || fail "an update has no time to wait for jobs"
# Both services are in the group that reads the keys of certificates.
for package in island-coordinator island-nats; do
    grep -qx "m $package island-tls" "$work/$package/usr/lib/sysusers.d/$package.conf" || fail "$package is not in the group island-tls"
done

[ "$failures" = 0 ] || exit 1
echo "contents: $(find "$work" -type f | wc -l) files in six packages are as they should be"
