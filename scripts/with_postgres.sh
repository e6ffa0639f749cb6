#!/usr/bin/env bash
# with_postgres.sh COMMAND…: run a command with a temporary private PostgreSQL.
#
# Installs Debian's package if none is installed. The server uses a temporary folder and listens only on a socket there:
# it needs no port, and no other user can reach it. The command gets its URL in PHALANX_TEST_POSTGRES.
set -euo pipefail

if [ $# -eq 0 ]; then
    sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi

find_bin() {
    local folder
    for folder in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin "$(dirname "$(command -v initdb || echo /none/initdb)")"; do
        [ -x "$folder/initdb" ] && [ -x "$folder/pg_ctl" ] && echo "$folder"
    done | sort -V | tail -n 1
}

bin=$(find_bin)
if [ -z "$bin" ]; then
    if ! command -v apt-get >/dev/null; then
        echo "with_postgres.sh: PostgreSQL is not installed, and there is no apt-get: install it first" >&2
        exit 1
    fi
    as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    "${as_root[@]}" apt-get -qq update >&2
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends postgresql >&2
    bin=$(find_bin)
fi

# PostgreSQL refuses to run as root.
as_owner=()
[ "$(id -u)" -ne 0 ] || as_owner=(runuser -u postgres --)

folder=$(mktemp -d /tmp/phalanx-postgres.XXXXXX)  # a socket has a short path
[ "$(id -u)" -ne 0 ] || chown postgres "$folder"
command_pid= told=

clean_up() {
    trap '' INT TERM
    (cd / && "${as_owner[@]}" "$bin/pg_ctl" -D "$folder/data" -m immediate -w stop >/dev/null 2>&1) || true
    rm -rf "$folder"
}
trap clean_up EXIT
# Repeated until the command has ended: between fork and exec a child of bash loses a signal.
end_command() { while [ -n "$command_pid" ] && kill -TERM "$command_pid" 2>/dev/null; do sleep 0.2; done; }
trap 'told=yes; end_command' INT TERM

cd_and_log() { (cd / && "${as_owner[@]}" "$@" >>"$folder/setup.log" 2>&1) || { cat "$folder/setup.log" >&2; exit 1; }; }
cd_and_log "$bin/initdb" -D "$folder/data" -U phalanx -A trust -E UTF8 --locale=C.UTF-8 --no-sync
cd_and_log "$bin/pg_ctl" -D "$folder/data" -l "$folder/server.log" -w -t 60 start \
    -o "-c listen_addresses='' -c unix_socket_directories='$folder' -c fsync=off -c synchronous_commit=off"

export PHALANX_TEST_POSTGRES="postgresql://phalanx@/postgres?host=$folder"
[ -z "$told" ] || exit 143
"$@" <&0 &
command_pid=$!
[ -z "$told" ] || end_command  # a signal may have come before the command had a name
status=0
wait "$command_pid" || status=$?
# A signal ends `wait` before the command: then wait for the command itself.
while kill -0 "$command_pid" 2>/dev/null; do
    status=0
    wait "$command_pid" || status=$?
done
exit "$status"
