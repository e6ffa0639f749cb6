#!/bin/sh
# The demo: check the file, then run it on this machine and look at what is left. Argument: the folder of phalanx.
set -eu
bin=$(cd "$1" && pwd)
cd "$(dirname "$0")"
PHALANX_HOME=$(mktemp -d)
trap 'rm -rf "$PHALANX_HOME"' EXIT
export PATH="$bin:$PATH" PHALANX_HOME
say() { printf '\n\033[1m$ %s\033[0m\n' "$*"; "$@"; }
say phalanx check
say phalanx run --name demo
say phalanx ps -q "metric.loss:<1" --sort metric.loss
say phalanx logs demo --tail 4
say phalanx statuses demo
printf '\nLook further: phalanx plan, phalanx show, phalanx events, phalanx top (in %s)\n' "$(pwd)"
