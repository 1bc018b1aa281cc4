# Sourced by the tests of the images, with `self` as their own path: a Docker Engine in a network of the test's own, whose bridges and rules end with it,
# with the images loaded. Before that the images are made, since no registry can be reached from there. Sets `work`, `target` and `version`.
# `before_finish` runs before the engine stops, `report` when the test fails; a test may define both.
# shellcheck shell=bash
target=${CARGO_TARGET_DIR:-$HOME/.cache/island/target}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
if [ "${1:-}" != alone ]; then
    DOCKER_HOST=unix:///nowhere packaging/images/build.sh
    PROFILE='' exec unshare --net --mount --fork --kill-child "$self" alone
fi
ip link set lo up

work=$(mktemp -d /tmp/isl-images.XXXXXX)
export DOCKER_HOST=unix://$work/docker.sock
daemon=
before_finish() { :; }
report() { :; }
finish() {
    if [ -n "$daemon" ]; then
        before_finish >/dev/null 2>&1 || true
        kill "$daemon" 2>/dev/null || true
        wait "$daemon" 2>/dev/null || true
    fi
    findmnt --raw --noheadings --output TARGET | { grep "^$work/" || true; } | while read -r mount; do umount --lazy "$mount"; done
    rm -rf --one-file-system "$work"
}
trap finish EXIT
fail() {
    say "$*" >&2
    [ -z "$daemon" ] || report >&2
    exit 1
}
until_true() { # WHAT COMMAND...: within two minutes
    local what=$1
    shift
    for _ in $(seq 240); do if "$@" >/dev/null 2>&1; then return; fi; sleep 0.5; done
    fail "$what did not happen"
}

say "starting a Docker Engine"
# Without the right to raise limits, as inside of containers, they must be these.
dockerd --data-root "$work/data" --exec-root "$work/exec" --pidfile "$work/pid" --host "$DOCKER_HOST" --oom-score-adjust 0 \
    --default-ulimit nofile=1024:1024 >"$work/log" 2>&1 </dev/null &
daemon=$!
for _ in $(seq 300); do
    docker version >/dev/null 2>&1 && break
    kill -0 "$daemon" 2>/dev/null || { tail "$work/log" >&2; daemon=; fail "dockerd does not start"; }
    sleep 0.2
done
packaging/images/build.sh
