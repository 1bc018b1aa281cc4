#!/bin/sh
# Serves the database island of the user island; at the first start it creates both, with the password in a file.
set -eu
bin=$(echo /usr/lib/postgresql/*/bin)
data=/var/lib/postgresql/data
if [ ! -s "$data/PG_VERSION" ]; then
    # What an earlier start did not finish.
    rm -rf "$data.new"
    "$bin/initdb" --pgdata "$data.new" --username island --pwfile "${POSTGRESQL_PASSWORD_FILE:?names a file with the password}" \
        --auth-local trust --auth-host scram-sha-256 --encoding UTF8 --locale C.UTF-8 --data-checksums
    echo "host all all all scram-sha-256" >>"$data.new/pg_hba.conf"
    echo "CREATE DATABASE island;" | "$bin/postgres" --single -D "$data.new" postgres >/dev/null
    mv "$data.new" "$data"
fi
exec "$bin/postgres" -D "$data" -c listen_addresses='*' -c unix_socket_directories=/run/postgresql "$@"
