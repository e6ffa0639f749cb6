#!/usr/bin/env bash
# launcher-0, rank 2 of 3, of run r-1
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd) || exit 1
case $here in *[\"\\]*) echo "the folder's name has quotes or backslashes in it: $here" >&2; exit 1;; esac
base=${PHALANX_BASE_PORT:-29400}
case $base in *[!0-9]*) echo "PHALANX_BASE_PORT is not a number: $base" >&2; exit 1;; esac
set -- "$here" "$base"
. "$1/shared.sh"
export PHALANX_REPLICA=launcher-0
export PHALANX_ROLE=launcher
export PHALANX_INDEX=0
export PHALANX_RANK=2
export PHALANX_LOCAL_RANK=0
export POLYAXON_TASK_INFO='{"type": "launcher", "index": 0}'
[ -n "${OMPI_ALLOW_RUN_AS_ROOT:-}" ] || export OMPI_ALLOW_RUN_AS_ROOT=1
[ -n "${OMPI_ALLOW_RUN_AS_ROOT_CONFIRM:-}" ] || export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec mpirun -np 2 --hostfile "$1"/hostfile bash -c ./solve
