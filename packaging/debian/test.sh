#!/usr/bin/env bash
# Installs the packages in a clean Debian, joins a network with a code, runs a job, upgrades in place, removes and purges.
# Needs root and mmdebstrap. There is no systemd inside: the service's program is started as the unit would, by its user (boot.sh
# has a real one).
set -euo pipefail
cd "$(dirname "$0")/../.."

. packaging/debian/common.sh
trap clean EXIT
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"; }
agent() { chroot --userspec=island:island "$root" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/var/lib/island-agent LC_ALL=C island-agent --config /etc/island/agent.toml "$@"; }

say "making a clean Debian"
mmdebstrap --quiet --variant=minbase --include=ca-certificates,systemd,libgomp1,libstdc++6 bookworm "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind --make-rslave /sys "$root/sys"
cp "$target"/deb/island-agent_*.deb "$root/tmp/agent.deb"

say "installing"
inside dpkg -i /tmp/agent.deb
inside id island
wanted=$root/etc/systemd/system/multi-user.target.wants/island-agent.service
[ -L "$wanted" ] || { say "a machine that boots from this would not start the agent"; exit 1; }
install -d -m 0700 -o "$(inside id -u island)" -g "$(inside id -g island)" "$root/var/lib/island-agent"

network

say "joining with a code"
inside island-agent enroll --coordinator "$api" >"$work/enrol.log" &
enrolling=$!
for _ in $(seq 100); do grep -q 'hosts pair' "$work/enrol.log" && break; sleep 0.1; done
"$built/island" hosts pair "$(sed -n 's/.*hosts pair //p' "$work/enrol.log")"
wait "$enrolling"

start() {
    agent run >>"$work/agent.log" 2>&1 &
    pids+=($!)
    for _ in $(seq 100); do agent status 2>/dev/null | grep -q 'waiting for jobs' && return; sleep 0.2; done
    tail -20 "$work/agent.log"; exit 1
}
stop() { agent_pid=$(pgrep -f "^island-agent --config /etc/island/agent.toml run" | head -1); kill "$agent_pid"; while kill -0 "$agent_pid" 2>/dev/null; do sleep 0.1; done; }
start
say "running a job"
job 16
agent status
earned=$(agent status --json | jq .earned.jobs)
[ "$earned" = 1 ] || { say "it earned nothing"; exit 1; }

say "upgrading in place"
cached() { (cd "$root/var/lib/island-agent/cache" && find . -path ./partial -prune -o -type f -print | LC_ALL=C sort); }
models=$(cached)
stop
inside dpkg -i /tmp/agent.deb
start
job 16
# There may be more, since an Island that starts asks what to download.
gone=$(comm -23 <(printf '%s\n' "$models") <(cached))
[ -z "$gone" ] || { say "the cache lost $gone"; exit 1; }
[ "$(agent status --json | jq .earned.jobs)" = 2 ] || { say "the earnings were not kept"; exit 1; }
stop

say "removing and purging"
inside dpkg -r island-agent
[ -d "$root/var/lib/island-agent" ] || { say "removing took the state along"; exit 1; }
inside dpkg -P island-agent
[ ! -e "$root/var/lib/island-agent" ] && [ ! -e "$root/etc/island" ] || { say "purging left something"; find "$root/etc/island"; exit 1; }
[ ! -L "$wanted" ] || { say "purging left the agent enabled"; exit 1; }
say "all of it works"
