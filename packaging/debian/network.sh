#!/usr/bin/env bash
# Boots a clean Debian and sets up a network with TLS there from the packages island-coordinator and island-nats, by the commands of docs/operators.md;
# an Island outside joins it and runs a job.
# Needs root, mmdebstrap, systemd-nspawn, openssl and jq. PROFILE=dev takes what the tests build.
set -euo pipefail
cd "$(dirname "$0")/../.."

. packaging/debian/common.sh
trap finish EXIT

make_root procps,prometheus
cp "$target"/deb/island-{coordinator,nats,cargos}_*.deb "$root/root/"

# Its network is this machine's, so the ports are free ones; that of the API is one which only the right to do so opens.
mapfile -t ports < <(python3 -c 'import socket
def free(ports):
    for port in ports:
        try: return socket.create_server(("127.0.0.1", port))
        except OSError: pass
sockets = [free(range(1023, 600, -1)), free([0]), free([0])]
for socket in sockets: print(socket.getsockname()[1])')
public_url=https://localhost:${ports[0]}
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=An authority of this test" -keyout "$work/ca-key.pem" -out "$work/ca.pem" 2>/dev/null
openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout "$work/key.pem" -out "$work/request.pem" 2>/dev/null
openssl x509 -req -in "$work/request.pem" -CA "$work/ca.pem" -CAkey "$work/ca-key.pem" -CAcreateserial -days 2 \
    -extfile <(printf 'subjectAltName=DNS:localhost\n') -out "$work/cert.pem" 2>/dev/null
cp "$work/cert.pem" "$work/key.pem" "$root/root/"
printf "127.0.0.1 localhost\n" >>"$root/etc/hosts"
printf 'ARGS="--web.listen-address=127.0.0.1:%s"\n' "${ports[2]}" >"$root/etc/default/prometheus"
install -D -m 0644 "$work/ca.pem" "$root/usr/local/share/ca-certificates/network.crt"
boot
inside update-ca-certificates >/dev/null

say "setting a network up, as the guide does"
guide=$(sed -n '/^### From the packages/,/^##/p' docs/operators.md | sed -n '/^```sh$/,/^```$/{/^```/!p}')
[ "$(wc -l <<<"$guide")" -ge 10 ] || fail "the guide has no commands"
guide=${guide//https:\/\/island.example.org:8443/$public_url}
guide=${guide/apt install /apt install --yes }
guide=${guide/ init / --listen 127.0.0.1:${ports[0]} init --nats-listen 127.0.0.1:${ports[1]} }
# Everything is done by the superuser.
printf 'set -eu\ncd /root\nsudo() { "$@"; }\n%s\n' "$guide" >"$root/root/guide.sh"
inside bash /root/guide.sh </dev/null >"$work/guide.out" 2>"$work/guide.err" || { cat "$work/guide.out" "$work/guide.err" >&2; fail "a command of the guide failed"; }
ready() { curl --silent --cacert "$work/ca.pem" "$public_url/api/v1/ready" | grep -q '"ok"'; }
until_true "the network" ready
owner=$(inside stat -c %U /var/lib/island-nats/nats.conf /var/lib/island-coordinator/fabric/operator.seed /var/lib/island-coordinator/backup.db | paste -sd' ')
[ "$owner" = "island-nats island-coordinator island-coordinator" ] || fail "the files belong to $owner"
inside systemctl show island-nats island-coordinator -p Id -p ActiveState -p User
watched() { curl --silent "http://127.0.0.1:${ports[2]}/api/v1/query?query=up" | jq -e '[.data.result[] | select(.metric.job == "island-coordinator" and .value[1] == "1")] | length == 1'; }
until_true "a scrape of the coordinator" watched

say "an Island joins it and runs a job"
export SSL_CERT_FILE=$work/ca.pem SERVICE_API_URL=$public_url
SERVICE_API_KEY=$(grep '^ak_' "$work/guide.out")
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

say "without its package, nothing of it runs"
inside dpkg -r island-cargos island-coordinator island-nats
for unit in island-coordinator island-nats; do
    ! inside systemctl --quiet is-active "$unit" || fail "$unit runs on"
done

say "with its package back, all of it runs again"
inside sh -c 'dpkg -i /root/island-nats_*.deb /root/island-coordinator_*.deb /root/island-cargos_*.deb'
until_true "the network" ready
inside dpkg -r island-cargos island-coordinator island-nats
inside dpkg -P island-coordinator island-nats
[ -f "$root/var/lib/island-coordinator/island.db" ] || fail "purging deleted the books"
say "all of it works"
