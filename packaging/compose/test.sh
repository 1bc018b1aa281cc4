#!/usr/bin/env bash
# Brings the network of compose.yaml up in a Docker Engine of its own, runs a job from outside, kills a node of NATS and a coordinator, runs jobs again,
# and takes it down. Needs root and dockerd. Compose is fetched where it is missing.
#   packaging/compose/test.sh                  with the images of `make images`
#   PROFILE=dev packaging/compose/test.sh      with images of what the tests run
#   packaging/compose/test.sh config           only checks the files; starts nothing
set -euo pipefail
self=$(realpath "$0")
cd "$(dirname "$0")/../.."

say() { printf '\033[1mcompose:\033[0m %s\n' "$*"; }

# Compose of this system, or the one of a later Debian, unpacked.
docker_compose=(docker compose)
if ! "${docker_compose[@]}" version >/dev/null 2>&1; then
    docker_compose=(.tools/compose/usr/libexec/docker/cli-plugins/docker-compose)
    if [ ! -x "${docker_compose[0]}" ]; then
        say "fetching docker-compose into .tools/compose"
        # shellcheck disable=SC1091
        suite=$(. /etc/os-release && [ "${VERSION_CODENAME:-}" = bookworm ] && echo trixie || echo -)
        scripts/packages.sh .tools/compose "$suite" files docker-compose
    fi
fi
compose() { "${docker_compose[@]}" --file packaging/compose/compose.yaml "$@"; }

if [ "${1:-}" = config ]; then
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
    images=$(compose --profile grafana config --images | grep -v '^grafana/')
    if grep -v ":$version$" <<<"$images"; then say "compose.yaml names other images than those of version $version" >&2; exit 1; fi
    # Webhooks and providers for sign-in are elsewhere; nothing but the proxy is published.
    compose config --format json | jq -e '
        .networks as $networks
        | ([.services.coordinator.networks | keys[] | select($networks[.].internal | not)] | length > 0)
          and ([.services | to_entries[] | select(.value.ports) | .key] == ["proxy"])' >/dev/null ||
        { say "the coordinators reach no webhook, or others than the proxy are published" >&2; exit 1; }
    ISLAND_HOST=island.example.org compose --file packaging/compose/compose.public.yaml config --quiet
    say "the files are valid"
    exit
fi

. packaging/images/engine.sh
export COMPOSE_PROJECT_NAME=island-test
before_finish() { compose down --volumes --timeout 5; }
report() { compose ps --all; compose logs --tail 20; }

say "bringing the network up"
compose up --detach --wait >"$work/up" 2>&1 || { cat "$work/up" >&2; fail "the network does not come up"; }

coordinator() { compose exec --no-TTY coordinator island-coordinator --config coordinator.toml "$@"; }
program=$work/bin/usr/bin/island
dpkg-deb -x "$target/deb/island_${version}_$(dpkg --print-architecture).deb" "$work/bin"
SERVICE_API_URL=http://127.0.0.1:8080
SERVICE_API_KEY=$(coordinator admin key create --account "$(coordinator admin account create --email user@example.org --credits 100)" --name test)
export SERVICE_API_URL SERVICE_API_KEY
job() {
    local reply
    reply=$("$program" chat --max-tokens 24 "$1") || fail "the job failed"
    [ -n "$reply" ] || fail "the reply is empty"
    say "$1 $reply"
}
online() { "$program" hosts list --format json | grep -q '"online"'; }
prometheus() { compose exec --no-TTY prometheus wget -q -O - "http://127.0.0.1:9090/api/v1/$1"; }
# The number of Prometheus' targets that answer.
scraped() { [ "$(prometheus "query?query=sum(up)" | jq -r '.data.result[0].value[1]')" = "$1" ]; }
# By the names under which the alerts expect them.
watched() { [ "$(prometheus targets | jq -r '[.data.activeTargets[].labels.job] | unique | join(" ")')" = "island-agent island-coordinator prometheus" ]; }
alerts() { prometheus rules | jq -e '[.data.groups[].rules[] | select(.type == "alerting")] | length > 0'; }

until_true "the Island's registration" online
job "What is Island?"
hash=$("$program" jobs submit --workload wasm-hash --input '{"text": "abc", "algorithms": ["sha256"]}' --stream) || fail "a module does not run"
[[ $hash == *414140de5dae2223* ]] || fail "the hash of abc is $hash"
until_true "a scrape of two coordinators, the Island and Prometheus" scraped 4
until_true "a scrape under the names of the alerts" watched
until_true "the load of alerts" alerts

say "killing a node of NATS and a coordinator"
containers() { compose ps --quiet "$1" | head -1; }
# Killed from outside the project, so that the restart policy does not bring them back while the jobs run.
docker update --restart no "$(containers nats-1)" "$(containers coordinator)" >/dev/null
docker kill "$(containers nats-1)" "$(containers coordinator)" >/dev/null
until_true "the Island's return" online
job "Write about a ball."
job "What is a walk?"

say "bringing both back"
compose up --detach --wait >"$work/up" 2>&1 || { cat "$work/up" >&2; fail "the network does not come back"; }
until_true "the Island's return" online
job "What is a letter?"
coordinator admin audit
say "all of it works"
