# What the tests of the packages begin with: a folder of their own, a Debian that boots, and a network that runs outside of it.
# shellcheck shell=bash
target=${CARGO_TARGET_DIR:-$HOME/.cache/island/target}
built=$target/$([ "${PROFILE:-release}" = dev ] && echo debug || echo "${PROFILE:-release}")
work=$(mktemp -d /tmp/isl-deb.XXXXXX)
root=$work/root
pids=()

say() { printf '\033[1m%s:\033[0m %s\n' "$(basename "$0" .sh)" "$*"; }

clean() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    umount -l "$root/proc" "$root/dev" "$root/sys" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}

# Starts a network without an Island; $api is its address, and `island` finds it.
network() {
    say "starting a network without an Island"
    "$built/island" dev --no-limits --no-island --data-dir "$work/dev" >"$work/dev.log" 2>&1 &
    pids+=($!)
    for _ in $(seq 200); do [ -f "$work/dev/dev.json" ] && break; sleep 0.1; done
    api=$(jq -r .api_url "$work/dev/dev.json")
    export SERVICE_API_URL=$api SERVICE_API_KEY=$(jq -r .api_key "$work/dev/dev.json")
}

job() { # TOKENS
    "$built/island" jobs submit --workload llm-chat --input "{\"prompt\": \"Describe the sea.\", \"max_tokens\": $1}" --stream
}

# --- A Debian that boots with its own systemd. A test that uses it traps `finish`.
leader=

finish() {
    [ -z "$leader" ] || kill -RTMIN+4 "$leader" 2>/dev/null || true
    clean
}
inside() { nsenter -t "$leader" -m -u -i -p -- /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"; }
fail() {
    say "$*"
    { inside systemctl list-units --failed --plain --no-legend --no-pager; inside journalctl --no-pager -n 40 -u 'island-*'; } 2>/dev/null || true
    exit 1
}
until_true() { # WHAT COMMAND...: within a minute, or after $looks looks
    local what=$1; shift
    for _ in $(seq "${looks:-300}"); do if "$@" >/dev/null 2>&1; then return; fi; sleep 0.2; done
    fail "$what did not happen"
}

make_root() { # PACKAGES
    say "making a clean Debian with systemd"
    mmdebstrap --quiet --variant=minbase --include="ca-certificates,systemd,systemd-sysv,dbus,$1" bookworm "$root"
}

boot() {
    say "booting"
    # nspawn adds system call filters, and older ones leave out landlock; a machine has none of them.
    systemd-nspawn --quiet --system-call-filter="landlock_create_ruleset landlock_add_rule landlock_restrict_self" -D "$root" --boot --register=no --keep-unit --machine="isl-boot-$$" --console=pipe </dev/null >"$work/boot.log" 2>&1 &
    pids+=($!)
    # Children with another name prepare the container, and end.
    for _ in $(seq 300); do leader=$(pgrep -P "${pids[-1]}" -x systemd | head -1 || true); [ -n "$leader" ] && break; sleep 0.1; done
    until_true "booting" inside systemctl is-system-running --wait
}
