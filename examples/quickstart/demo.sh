#!/bin/sh
# The demo: check the file, show the plan, render it for this machine and run it. Argument: the folder of phalanx.
set -eu
bin=$(cd "$1" && pwd)
cd "$(dirname "$0")"
job=$(mktemp -d)
trap 'rm -rf "$job"' EXIT
export PATH="$bin:$PATH" PHALANX_BASE_PORT="${PHALANX_BASE_PORT:-$(python -c '
import socket
with socket.create_server(("127.0.0.1", 0)) as free:
    print(free.getsockname()[1])')}"
say() { printf '\n\033[1m$ %s\033[0m\n' "$*"; "$@"; }
say phalanx check
say phalanx plan
say phalanx plan --on local -o "$job/run" >/dev/null
say bash "$job/run/start.sh"
cat "$job"/run/logs/master-0.log
tail -n 1 "$job"/run/logs/worker-*.log
