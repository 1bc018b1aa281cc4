#!/usr/bin/env bash
# Boots a clean Debian with its own systemd, and has the packages live there: the unit, its credential, its watchdog, draining on stop,
# hostile engines in the unit's sandbox, an update that comes up and one that does not.
# Needs root, mmdebstrap and systemd-nspawn. PROFILE=dev takes what the tests build.
set -euo pipefail
cd "$(dirname "$0")/../.."

. packaging/debian/common.sh
trap finish EXIT
status() { inside island-agent --config /etc/island/agent.toml status --json; }
connected() { [ "$(status | jq .connected)" = true ]; }
runs_version() { [ "$(status | jq -r .version)" = "$1" ] && connected; }
works() { [ "$(status | jq -r .verdict.work)" = "$1" ]; }
busy() { [ "$(status | jq '.jobs | length')" -gt 0 ]; }

make_root libpam-systemd,libgomp1,libstdc++6,dpkg-repack
cp "$target"/deb/island-agent_*.deb "$root/agent.deb"
cp "$target"/deb/island-update_*.deb "$root/update.deb"

network

boot

say "installing, and joining without a person"
inside dpkg -i /agent.deb
printf '%s\n' "$SERVICE_API_KEY" | inside tee /etc/island/key >/dev/null
inside sed -i "1i api_url = \"$api\"" /etc/island/agent.toml
inside systemctl restart island-agent
until_true "joining" connected
inside systemctl show island-agent -p ActiveState -p StatusText -p User -p MainPID
# As the agent inside its unit reached them, and not as root would.
sandbox=$("$built/island" hosts list --format json | jq -c '[.. | .sandbox? // empty][0]')
say "sandbox: $sandbox"
[ "$(jq -r .level <<<"$sandbox")" = full ] || fail "the unit prevents a layer of the sandbox"
# As the guides for owners print it, without the file of settings.
inside island-agent doctor | tee "$work/doctor" || true
grep -q '^ok *engine llmcpp' "$work/doctor" || fail "doctor does not find the engines of the agent"
grep -q '^ok *test job' "$work/doctor" || fail "the test job did not come back"

say "every command of the agent in the guides for owners"
# Enrolling and leaving are those of test.sh; that the commands exist with their flags is a test without packages.
mapfile -t documented < <(cat docs/owners.md docs/gpu.md | tr '`' '\n' | sed -n 's/^\(sudo \)\?\(island-agent .*\)/\2/p' | grep -v ' doctor$\| enroll \| leave$\| run$\| --watch' | sort -u)
[ "${#documented[@]}" -ge 5 ] || fail "the guides have only ${#documented[@]} commands"
for line in "${documented[@]}"; do
    # shellcheck disable=SC2086 # words
    inside $line >"$work/ran" 2>&1 || fail "$line: $(cat "$work/ran")"
done
inside island-agent resume
until_true "work after the guides' pause" works yes

say "the key of the account may be deleted once the Island has joined"
inside rm /etc/island/key
inside systemctl restart island-agent || fail "it does not start without the key"
until_true "coming back" connected

say "a person who is logged in comes first"
inside sed -i 's/^# idle_minutes = .*/idle_minutes = 1/' /etc/island/agent.toml
inside systemctl restart island-agent
until_true "work while nobody is logged in" works yes
inside useradd visitor
inside systemd-run --quiet --unit=visitor -p User=visitor -p PAMName=login sleep infinity
logged_in() { inside loginctl list-sessions --no-legend | grep -q visitor; }
until_true "a session" logged_in
until_true "making room for a person" works leave
[ "$(status | jq -r .verdict.cause)" = in_use ] || fail "it makes room for another reason: $(status | jq -c .verdict)"
inside systemctl stop visitor
until_true "work after the person has left" works yes

# What a desktop is to the login manager: a session of its kind that reports itself whether it is idle. Input reaches no terminal there.
of_visitor() { inside loginctl list-sessions --no-legend | awk '$3 == "visitor" { print $1; exit }'; }
no_session() { [ -z "$(of_visitor)" ]; }
report_idle() { # SESSION BOOLEAN: as the desktop does, with the rights of its user
    local path
    path=$(inside busctl --json=short call org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager GetSession s "$1" | jq -r '.data[0]')
    inside setpriv --reuid=visitor --regid=visitor --clear-groups \
        busctl call org.freedesktop.login1 "$path" org.freedesktop.login1.Session SetIdleHint b "$2"
}
for kind in x11 wayland; do
    say "a person at a desktop ($kind) comes first, until it reports that nobody is there"
    until_true "the end of the last session" no_session
    inside systemd-run --quiet --unit="$kind" -p User=visitor -p PAMName=login \
        --setenv=XDG_SESSION_TYPE="$kind" --setenv=XDG_SESSION_CLASS=user sleep infinity
    until_true "a session" logged_in
    session=$(of_visitor)
    [ "$(inside loginctl show-session "$session" -p Type --value)" = "$kind" ] || fail "it is a session of another kind"
    until_true "making room for a person" works leave
    report_idle "$session" true
    [ "$(inside loginctl show-session "$session" -p IdleHint --value)" = yes ] || fail "the login manager ignores the desktop"
    # A minute after the report.
    looks=600 until_true "work while nobody is at the desktop" works yes
    report_idle "$session" false
    until_true "making room for a person who returns" works leave
    [ "$(status | jq -r .verdict.cause)" = in_use ] || fail "it makes room for another reason: $(status | jq -c .verdict)"
    inside systemctl stop "$kind"
    until_true "work after the person has left" works yes
done
job 8
inside sed -i 's/^idle_minutes = .*/# idle_minutes = 10/' /etc/island/agent.toml
inside systemctl restart island-agent
until_true "coming back" connected

say "stopping costs nobody a job"
# One after the other, so that there is work at the moment of stopping however fast this machine is.
talk() { for _ in $(seq 10); do job 200 || return; done; }
replies=()
for number in $(seq 12); do
    talk >"$work/reply.$number" 2>&1 &
    replies+=($!)
done
until_true "work" busy
inside systemctl stop island-agent
inside systemctl start island-agent
until_true "coming back" connected
for reply in "${replies[@]}"; do wait "$reply" || fail "a job was lost: $(tail -n 2 "$work"/reply.*)"; done
say "$((10 * ${#replies[@]})) jobs ended well"

say "an agent that stands still is started anew"
inside mkdir -p /etc/systemd/system/island-agent.service.d
printf '[Service]\nWatchdogSec=5\n' | inside tee /etc/systemd/system/island-agent.service.d/watchdog.conf >/dev/null
inside systemctl daemon-reload
inside systemctl restart island-agent
until_true "coming back" connected
inside systemctl kill --kill-whom=main --signal=STOP island-agent
restarted() { [ "$(inside systemctl show island-agent -p NRestarts --value)" -ge 1 ]; }
until_true "the watchdog" restarted
until_true "coming back" connected
inside rm -r /etc/systemd/system/island-agent.service.d

in_unit() { # NAME PROGRAM: a program of tests in the sandbox of the agent's unit, beside its libraries
    install -D -m 0755 "$2" "$root/usr/lib/island/$1"
    sed -e "s|^Type=.*|Type=oneshot|; s|^ExecStart=.*|ExecStart=/usr/lib/island/$1|; /^NotifyAccess/d; /^WatchdogSec/d; /^Restart/d; /^LoadCredential/d; /^SetCredential/d; /API_KEY_FILE/d; s|StateDirectory=.*|StateDirectory=island-$1|; s|%S/island-agent|%S/island-$1|" \
        systemd/island-agent.service >"$root/etc/systemd/system/island-$1.service"
    inside systemctl daemon-reload
    inside systemctl start "island-$1" || { inside journalctl --no-pager -u "island-$1" | tail -60; fail "something got through"; }
    inside journalctl --no-pager --output=cat -u "island-$1" | grep -v '^Starting\|^Finished\|Deactivated\|Consumed' | tail -70
}

if [ -n "${HOSTILE:-}" ]; then
    say "hostile engines in the unit's sandbox"
    in_unit hostile "$HOSTILE"
fi

if [ -n "${SANDBOXES:-}" ]; then
    say "engines that were taken over, in the unit's sandbox, with what kernels of Debian know of Landlock"
    in_unit sandboxes "$SANDBOXES" | tee "$work/sandboxes"
    [ "$(grep -c '_is_confined ... ok' "$work/sandboxes")" -eq 3 ] || fail "an engine was left out"
fi

say "updates are off until the owner trusts keys"
inside dpkg -i /update.deb
[ "$(inside systemctl is-enabled island-update.timer || true)" = disabled ] || fail "the timer is on"
inside island-update check && fail "nobody is trusted yet"
releases=$work/releases
mkdir -p "$releases"
key=$("$built/island-update" keygen "$work/key")
repack() { # VERSION CHANGE...: the package under another version, changed
    local version=$1; shift
    rm -rf "$work/package"
    dpkg-deb -R "$target"/deb/island-agent_*.deb "$work/package"
    sed -i "s/^Version: .*/Version: $version/" "$work/package/DEBIAN/control"
    (cd "$work/package" && "$@")
    (cd "$work/package" && find . -path ./DEBIAN -prune -o -type f -printf '%P\n' | xargs -d '\n' md5sum >DEBIAN/md5sums)
    dpkg-deb --root-owner-group -Zgzip -z1 --build "$work/package" "$releases/island-agent_$version.deb" >/dev/null
}
release() { # NUMBER VERSION
    "$built/island-update" sign --key "$work/key" --out "$releases/manifest.json" --number "$1" --version "$2" \
        --file "$(uname -m)-deb=$releases/island-agent_$2.deb"
}
port=$((20000 + RANDOM % 20000))
python3 -m http.server --bind 127.0.0.1 --directory "$releases" "$port" >/dev/null 2>&1 &
pids+=($!)
printf 'manifest = "http://127.0.0.1:%s/manifest.json"\nkeys = ["%s"]\nstart_s = 20\n' "$port" "$key" | inside tee /etc/island/update.toml >/dev/null

say "an update that comes up"
old=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
new=${old%.*}.9
# The same program, which reports another version.
renumber() {
    mv usr/bin/island-agent usr/lib/island/island-agent-inside
    cat >usr/bin/island-agent <<AGENT
#!/bin/sh
case " \$* " in
*" status "*) /usr/lib/island/island-agent-inside "\$@" | sed 's/"version": *"$old"/"version": "$new"/' ;;
*) exec /usr/lib/island/island-agent-inside "\$@" ;;
esac
AGENT
    chmod 0755 usr/bin/island-agent
}
repack "$new" renumber
release 1 "$new"
inside island-update check

say "an update that is killed while it waits for jobs holds the agent for a limited time"
# What it leaves behind then: the hold that it renews.
inside island-agent --config /etc/island/agent.toml hold 15
[ "$(status | jq -r .verdict.cause)" = updating ] || fail "it accepts jobs: $(status | jq -c .verdict)"
until_true "work after the hold" works yes

say "an update does not wait for another program that installs, and is tried again"
mkdir -p "$work/slow/DEBIAN"
printf 'Package: slow\nVersion: 1\nArchitecture: all\nMaintainer: tests <tests@example.org>\nDescription: takes its time\n' >"$work/slow/DEBIAN/control"
printf '#!/bin/sh\ntouch /run/slow-installs\nwhile [ ! -e /run/slow-ends ]; do sleep 0.2; done\n' >"$work/slow/DEBIAN/postinst"
chmod 0755 "$work/slow/DEBIAN/postinst"
dpkg-deb --root-owner-group --build "$work/slow" "$root/slow.deb" >/dev/null
inside dpkg -i /slow.deb >/dev/null 2>&1 &
slow=$!
until_true "the other installation" inside test -e /run/slow-installs
inside systemctl start island-update || fail "it does not try again later"
inside touch /run/slow-ends
wait "$slow" || fail "the other package was not installed"
runs_version "$old" || fail "it was installed beside another program: $(status | jq -c .version)"
until_true "work after the update was postponed" works yes
inside island-update check | grep -q "$new may be installed" || fail "it is not tried again"

say "the same update, once it can be installed"
inside systemctl start island-update || fail "it was not updated"
until_true "version $new" runs_version "$new"
[ "$(status | jq -r .order.order)" = none ] || fail "it takes no work after its update"
job 8

say "an update that does not come up is taken back, and ends no pause"
broken=${old%.*}.10
repack "$broken" cp /bin/false usr/bin/island-agent
release 2 "$broken"
inside island-agent --config /etc/island/agent.toml pause 2h
inside systemctl start island-update && fail "it reports success"
until_true "version $new again" runs_version "$new"
[ "$(status | jq -r .order.order)" = pause ] || fail "the update ended the owner's pause: $(status | jq -c .order)"
inside island-agent --config /etc/island/agent.toml resume
until_true "work after the pause" works yes
inside island-update check | grep -q 'did not start here before' || fail "it would try again"
job 8

say "an older release is not taken"
release 1 "$new"
refused=$(inside island-update check 2>&1 || true)
grep -q 'was seen here before' <<<"$refused" || fail "it takes an older release: $refused"

say "purging the updates leaves nothing of them"
inside systemctl enable island-update.timer
inside dpkg -P island-update
[ ! -e "$root/var/lib/island-update" ] || fail "the packages of updates are still there"

say "all of it works"
