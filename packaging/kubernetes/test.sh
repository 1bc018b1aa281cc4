#!/usr/bin/env bash
# Starts the containers of the example's manifests in a Docker Engine, with the Secrets of secrets.sh and a PostgreSQL, and checks that both coordinators
# become ready. It is not a cluster: probes, policies and the Ingress have no effect. Needs root and dockerd.
#   packaging/kubernetes/test.sh                  with the images of `make images`
#   PROFILE=dev packaging/kubernetes/test.sh      with images of what the tests run
set -euo pipefail
self=$(realpath "$0")
cd "$(dirname "$0")/../.."
say() { printf '\033[1mkubernetes:\033[0m %s\n' "$*"; }

. packaging/kubernetes/tools.sh
. packaging/images/engine.sh
before_finish() { docker ps --quiet --all | xargs --no-run-if-empty docker rm --force --volumes; }
report() { for name in $(docker ps --all --format '{{.Names}}'); do echo "== $name"; docker logs --tail 20 "$name" 2>&1; done; }

dpkg-deb -x "$target/deb/island-coordinator_${version}_$(dpkg --print-architecture).deb" "$work/package"
export PATH=$work/package/usr/bin:$PATH
pods=$work/pods
mkdir "$pods"
kubectl kustomize packaging/kubernetes/example >"$pods/network.yaml"
packaging/kubernetes/secrets.sh packaging/kubernetes/base/coordinator.toml "$work/keys" >"$pods/secrets.yaml" 2>"$work/secrets.log" ||
    { cat "$work/secrets.log" >&2; fail "secrets.sh failed"; }
printf -- '---\n' >>"$pods/secrets.yaml"
kubectl create secret generic island-database --from-literal=url=postgres://island:password@database/island --dry-run=client --output=yaml >>"$pods/secrets.yaml"

say "starting the pods' containers"
docker network create pods >/dev/null
echo password >"$work/password"
docker run --detach --name database --network pods --volume "$work/password:/password:ro" --env POSTGRESQL_PASSWORD_FILE=/password \
    "island-postgresql:$version" >/dev/null
until_true "the database" docker exec database sh -c '/usr/lib/postgresql/*/bin/pg_isready -q -h 127.0.0.1 -U island'
"$python" packaging/kubernetes/pods.py "$pods" || fail "a container does not start"

answers() { docker exec "$1" wget -q -O /dev/null "$2"; }
for node in nats-0 nats-1 nats-2; do
    for path in healthz "healthz?js-enabled-only=true" "healthz?js-server-only=true"; do
        until_true "$path of $node" answers "$node" "http://127.0.0.1:8222/$path"
    done
done
for coordinator in island-coordinator-0 island-coordinator-1; do
    for path in health ready; do
        until_true "$path of $coordinator" answers "$coordinator" "http://127.0.0.1:8080/api/v1/$path"
    done
    until_true "metrics of $coordinator" answers "$coordinator" http://127.0.0.1:9090/metrics
done
docker exec island-coordinator-0 island-coordinator --config /etc/island/coordinator.toml admin audit

say "stopping one of each"
docker stop --time 60 island-coordinator-0 >/dev/null
docker stop --time 150 nats-0 >/dev/null
for stopped in island-coordinator-0 nats-0; do
    code=$(docker inspect --format '{{.State.ExitCode}}' "$stopped")
    [ "$code" = 0 ] || fail "$stopped ended with $code"
done
until_true "ready of the other coordinator" answers island-coordinator-1 http://127.0.0.1:8080/api/v1/ready
say "all of it works"
