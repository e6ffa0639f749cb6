#!/usr/bin/env bash
# Starts all replicas of run r-1 on this machine and waits for them. Run it in the folder of the code.
# Logs and outputs go beside this script. PHALANX_BASE_PORT moves the ports (29400 and up).
set -m # every replica in a process group of its own, so that nothing of it is left behind
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 1
case $here in *[\"\\]*) echo "the folder's name has quotes or backslashes in it: $here" >&2; exit 1;; esac
base=${PHALANX_BASE_PORT:-29400}
case $base in *[!0-9]*) echo "PHALANX_BASE_PORT is not a number: $base" >&2; exit 1;; esac
set -- "$here" "$base"
mkdir -p -- "$1/logs" "$1/outputs"
workers=() helpers=()
start() {
  bash "$here/replicas/$1.sh" >"$here/logs/$1.log" 2>&1 </dev/null &
}
tell() {
  for pid in "${workers[@]}" "${helpers[@]}"; do kill "$1" -- "-$pid" 2>/dev/null; done
}
any_left() {
  for pid in "${workers[@]}" "${helpers[@]}"; do kill -0 -- "-$pid" 2>/dev/null && return 0; done
  return 1
}
end_all() {
  tell -TERM
  for _ in $(seq 100); do any_left || break; sleep 0.1; done
  tell -KILL
  wait 2>/dev/null
}
told= # while replicas are started a signal only leaves word: one that is not on its list yet would not be ended
trap 'told=yes' INT TERM HUP
start master-0; workers+=($!)
start worker-0; workers+=($!)
start ps-0; helpers+=($!)
trap 'end_all; exit 143' INT TERM HUP
[ -z "$told" ] || { end_all; exit 143; }
code=0 running=("${workers[@]}")
while [ "$code" -eq 0 ] && [ "${#running[@]}" -gt 0 ]; do
  sleep 0.1
  still=()
  for pid in "${running[@]}"; do
    if kill -0 "$pid" 2>/dev/null; then still+=("$pid"); else wait "$pid" || code=$?; fi
  done
  running=(${still[@]+"${still[@]}"})
  for pid in ${helpers[@]+"${helpers[@]}"}; do # they serve for ever; one that failed fails the run
    kill -0 "$pid" 2>/dev/null || wait "$pid" || code=$?
  done
done
end_all 2>/dev/null
echo "run r-1 ended with code $code; logs in $1/logs"
exit "$code"
