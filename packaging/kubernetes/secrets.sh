#!/usr/bin/env bash
# Creates the keys of a network and the settings of its NATS nodes in a folder, and prints them as the Secrets island-fabric and island-nats.
# Run again, it changes what follows from the settings and keeps every key. Needs island-coordinator and kubectl, but no cluster.
#   secrets.sh base/coordinator.toml FOLDER | kubectl --namespace island apply -f -
set -euo pipefail
[ $# = 2 ] || { sed -n '2,4p' "$0" >&2; exit 2; }
umask 077
mkdir -p "$2/nats"
folder=$(cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# `init` writes into folders of this machine; in a pod they are those of the settings.
cp "$1" "$work/coordinator.toml"
nats=$(island-coordinator --config "$work/coordinator.toml" config show | sed -n '/^\[nats\]/,/^\[/s/^dir = "\(.*\)"$/\1/p')
[ -n "$nats" ] || { echo "secrets.sh: $1 does not name the folder nats.dir" >&2; exit 1; }
# For probes.
[ -e "$folder/nats/nats.local.conf" ] || echo 'http: "[::]:8222"' >"$folder/nats/nats.local.conf"
island-coordinator --config "$work/coordinator.toml" --fabric-dir "$folder/fabric" init --nats-dir "$folder/nats" >&2
mkdir "$work/nats"
for conf in "$folder"/nats/*.conf; do
    sed "s#\"$folder/nats/#\"$nats/#" "$conf" >"$work/nats/$(basename "$conf")"
done

secret() { # NAME FOLDER
    kubectl create secret generic "$1" --from-file="$2" --dry-run=client --output=yaml
}
secret island-fabric "$folder/fabric"
echo ---
secret island-nats "$work/nats"
