# Sourced by the scripts beside it: kubectl of this system or of a later Debian, unpacked, and Python with the schemas of Kubernetes, as `python`.
# shellcheck shell=bash
tools=$PWD/.tools/kubernetes
python=$tools/python/bin/python
mkdir -p "$tools"
if ! command -v kubectl >/dev/null; then
    if [ ! -x "$tools/kubectl/usr/bin/kubectl" ]; then
        say "fetching kubectl into $tools"
        # shellcheck disable=SC1091
        suite=$(. /etc/os-release && [ "${VERSION_CODENAME:-}" = bookworm ] && echo trixie || echo -)
        scripts/packages.sh "$tools/kubectl" "$suite" files kubectl
    fi
    export PATH=$PATH:$tools/kubectl/usr/bin
fi
if ! cmp -s packaging/kubernetes/validate.txt "$tools/stamp"; then
    say "installing the schemas of Kubernetes into $tools"
    python3 -m venv --clear "$tools/python"
    "$python" -m pip install --quiet --disable-pip-version-check -r packaging/kubernetes/validate.txt
    cp packaging/kubernetes/validate.txt "$tools/stamp"
fi
