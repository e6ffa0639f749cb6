#!/usr/bin/env bash
# ps-0, rank 2 of 3, of run r-1
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd) || exit 1
case $here in *[\"\\]*) echo "the folder's name has quotes or backslashes in it: $here" >&2; exit 1;; esac
base=${PHALANX_BASE_PORT:-29400}
case $base in *[!0-9]*) echo "PHALANX_BASE_PORT is not a number: $base" >&2; exit 1;; esac
set -- "$here" "$base"
. "$1/shared.sh"
export PHALANX_REPLICA=ps-0
export PHALANX_ROLE=ps
export PHALANX_INDEX=0
export PHALANX_RANK=2
export PHALANX_LOCAL_RANK=0
export POLYAXON_TASK_INFO='{"type": "ps", "index": 0}'
export TF_CONFIG='{"cluster": {''"master": ['"${3}"']'', ''"worker": ['"${4}"']'', ''"ps": ['"${5}"']''}, "task": ''{"type": "ps", "index": '0'}'', "model_dir": "'"$1"/outputs'", "environment": "cloud"}'
exec bash -c 'python train.py'
