#!/usr/bin/env bash
# Unpacks Debian packages into a folder, without installing them: compilers and drivers newer than this system's, or not wanted on it.
#   scripts/packages.sh FOLDER SUITE files PACKAGE...     these packages alone
#   scripts/packages.sh FOLDER SUITE closure PACKAGE...   these, and what they need of what is not installed
# SUITE names a release of the same archive that this system installs from; `-` is this system's own. The archive's address and keys are
# those of apt, whose own lists stay as they are. COMPONENTS="main non-free" names other parts of the archive than main.
set -euo pipefail
folder=$1 suite=$2 what=$3
shift 3
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{sources,lists/partial,cache/archives/partial}
# shellcheck disable=SC1091
. /etc/os-release
# Nothing is installed, so apt needs no lock of the package manager, which only root may take.
options=(-qq -oDir::State::Lists="$work/lists" -oDir::Cache="$work/cache" -oAPT::Sandbox::User= -oDebug::NoLocking=1)
if [ "$suite" != - ]; then
    targets=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages')
    archive=$(awk -v own="${VERSION_CODENAME:-}" '$1 == own { print $2; exit }' <<<"$targets")
    [ -n "$archive" ] || { echo "packages: apt installs nothing from ${VERSION_CODENAME:-this release}, so the archive of $suite is unknown" >&2; exit 1; }
    own=$([ "$what" = closure ] && echo "$VERSION_CODENAME" || true)
    printf 'Types: deb\nURIs: %s\nSuites: %s %s\nComponents: %s\n' "$archive" "$suite" "$own" "${COMPONENTS:-main}" >"$work/sources/archive.sources"
    options+=(-oDir::Etc::SourceList=/dev/null -oDir::Etc::SourceParts="$work/sources" -oAPT::Default-Release="$suite")
fi
apt-get "${options[@]}" update
if [ "$what" = closure ]; then
    apt-get "${options[@]}" install --download-only --reinstall --yes --no-install-recommends "$@" >/dev/null
else
    (cd "$work/cache/archives" && apt-get "${options[@]}" download "$@" >/dev/null)
fi
for package in "$work"/cache/archives/*.deb; do
    dpkg-deb --extract "$package" "$folder"
done
