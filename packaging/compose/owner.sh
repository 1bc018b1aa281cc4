#!/bin/sh
# Creates an account for the owner of this machine's Island, and a key, unless there is one.
set -eu
umask 077
key=/var/lib/island-secrets/key
[ ! -s "$key" ] || exit 0
email=owner@island.invalid
if ! island-coordinator --config coordinator.toml admin account list | grep -qF " $email "; then
    island-coordinator --config coordinator.toml admin account create --email "$email"
fi
island-coordinator --config coordinator.toml admin key create --account "$email" --name "the Island of this machine" >"$key.new"
mv "$key.new" "$key"
