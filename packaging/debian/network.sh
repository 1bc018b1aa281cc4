#!/usr/bin/env bash
# Boots a clean Debian and sets up a network with TLS there from the packages island-coordinator and island-nats, by the commands of docs/operators.md;
# an Island outside joins it and runs a job.
# Needs root, mmdebstrap, systemd-nspawn and openssl. PROFILE=dev takes what the tests build.
set -euo pipefail
cd "$(dirname "$0")/../.."

. packaging/debian/common.sh
trap finish EXIT
coordinator() { inside island-coordinator --config /etc/island/coordinator.toml "$@"; }

make_root procps
cp "$target"/deb/island-coordinator_*.deb "$root/coordinator.deb"
cp "$target"/deb/island-nats_*.deb "$root/nats.deb"

# Its network is this machine's, so the ports are free ones.
mapfile -t ports < <(python3 -c 'import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
for socket in sockets: print(socket.getsockname()[1])')
public_url=https://localhost:${ports[0]}
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=An authority of this test" -keyout "$work/ca-key.pem" -out "$work/ca.pem" 2>/dev/null
openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout "$work/key.pem" -out "$work/request.pem" 2>/dev/null
openssl x509 -req -in "$work/request.pem" -CA "$work/ca.pem" -CAkey "$work/ca-key.pem" -CAcreateserial -days 2 \
    -extfile <(printf 'subjectAltName=DNS:localhost\n') -out "$work/cert.pem" 2>/dev/null
printf "127.0.0.1 localhost\n" >>"$root/etc/hosts"
install -D -m 0644 "$work/ca.pem" "$root/usr/local/share/ca-certificates/network.crt"
boot

say "installing"
inside update-ca-certificates >/dev/null
inside dpkg -i /coordinator.deb /nats.deb
inside install -d -m 0755 /etc/island/tls
inside tee /etc/island/tls/cert.pem <"$work/cert.pem" >/dev/null
# Both services read it.
inside tee /etc/island/tls/key.pem <"$work/key.pem" >/dev/null
inside groupadd --system island-tls
for user in island-coordinator island-nats; do inside usermod --append --groups island-tls "$user"; done
inside chown root:island-tls /etc/island/tls/key.pem
inside chmod 0640 /etc/island/tls/key.pem

say "setting the network up"
coordinator --listen "127.0.0.1:${ports[0]}" init --public-url "$public_url" --nats-listen "127.0.0.1:${ports[1]}" \
    --tls-certificate /etc/island/tls/cert.pem --tls-key /etc/island/tls/key.pem
inside systemctl enable --now island-nats island-coordinator || fail "the services did not start"
ready() { curl --silent --cacert "$work/ca.pem" "$public_url/api/v1/ready" | grep -q '"ok"'; }
until_true "the network" ready
owner=$(inside stat -c %U /var/lib/island-nats/nats.conf /var/lib/island-coordinator/fabric/operator.seed | paste -sd' ')
[ "$owner" = "island-nats island-coordinator" ] || fail "the files belong to $owner"
inside systemctl show island-nats island-coordinator -p Id -p ActiveState -p User

say "an Island joins it and runs a job"
export SSL_CERT_FILE=$work/ca.pem SERVICE_API_URL=$public_url
account=$(inside runuser -u island-coordinator -- island-coordinator --config /etc/island/coordinator.toml admin account create --email you@example.org --credits 10)
SERVICE_API_KEY=$(inside runuser -u island-coordinator -- island-coordinator --config /etc/island/coordinator.toml admin key create --account "$account" --name laptop)
export SERVICE_API_KEY
printf 'state_dir = "%s"\napi_url = "%s"\napi_key = "%s"\n[cache]\ndir = "%s"\n' "$work/agent" "$public_url" "$SERVICE_API_KEY" "$work/cache" >"$work/agent.toml"
ISLAND_AGENT_MEASURE=false "$built/island-agent" --config "$work/agent.toml" run >"$work/agent.log" 2>&1 &
pids+=($!)
online() { "$built/island" hosts list --format json | grep -q '"online"'; }
until_true "the Island" online
job 8

say "services that are killed come back"
inside systemctl kill --signal=KILL island-nats island-coordinator
until_true "the network" ready
until_true "the Island" online
job 8

say "NATS reads a certificate that was replaced"
reloads() { inside journalctl --no-pager -u island-nats | grep -c 'Reloaded server configuration' || true; }
before=$(reloads)
inside tee /etc/island/tls/cert.pem <"$work/cert.pem" >/dev/null
reloaded() { [ "$(reloads)" -gt "$before" ]; }
until_true "the reload" reloaded
job 8
say "all of it works"
