# What both tests of the packages begin with: a folder of their own, and a network that runs outside of the Debian they make.
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
