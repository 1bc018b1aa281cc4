#!/usr/bin/env bash
# Images of coordinator, agent and nats-server from our packages, and of what a network needs beside them from Debian's, into target/images and
# the Docker Engine. No registry is used.
#   packaging/images/build.sh                  from the packages of `make deb`
#   PROFILE=dev packaging/images/build.sh      packages what the tests ran first
set -euo pipefail
cd "$(dirname "$0")/../.."

target=${CARGO_TARGET_DIR:-$HOME/.cache/island/target}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
[ "${PROFILE:-}" != dev ] || packaging/debian/build.sh
python3 packaging/images/build.py packaging/images "$target/images/work" "$target/deb" "$target/images" "$version"
if docker version >/dev/null 2>&1; then
    for recipe in packaging/images/*.txt; do
        docker load --quiet --input "$target/images/island-$(basename "$recipe" .txt)_$version.tar"
    done
else
    echo "images: no Docker Engine answers; load the archives with: docker load --input FILE"
fi
