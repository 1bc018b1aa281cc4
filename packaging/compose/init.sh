#!/bin/sh
# Sets the network up: password of the database, keys of the fabric, settings of coordinators and of three nodes of NATS.
set -eu
umask 077
password=/var/lib/island-secrets/password
if [ ! -s "$password" ]; then
    head -c 32 /dev/urandom | base64 | tr -d '\n=+/' >"$password.new"
    mv "$password.new" "$password"
fi
# Where the coordinator's client of PostgreSQL reads it.
printf 'postgresql:5432:island:island:%s\n' "$(cat "$password")" >"$HOME/.pgpass"

# Monitoring, for health checks.
local=/var/lib/island-nats/nats.local.conf
[ -e "$local" ] || echo 'http: "127.0.0.1:8222"' >"$local"

servers=nats://nats-1:4222,nats://nats-2:4222,nats://nats-3:4222
set -- --nats-public-url "$servers"
[ -z "$ISLAND_HOST" ] || set -- --public-url "https://$ISLAND_HOST" --nats-public-url "wss://$ISLAND_HOST/nats"
exec island-coordinator --config coordinator.toml --listen 0.0.0.0:8080 --database-url postgres://island@postgresql/island --nats-url "$servers" init \
    --nats-dir /var/lib/island-nats --nats-listen 0.0.0.0:4222 --nats-websocket 0.0.0.0:4223 --replicas 3 \
    --nats-node n1=nats-1:6222 --nats-node n2=nats-2:6222 --nats-node n3=nats-3:6222 "$@"
