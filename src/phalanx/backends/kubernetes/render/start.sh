# How every container of a run begins. Nothing of the user's stands in this file. Arguments:
#   prepare                           an init container: the code in its place, and the steps of the file run
#   run [COMMAND...]                  the replica
#   enter REPLICA [COMMAND...]        beside the replica, in its running container: see entry.py of the agent
#   train-job prepare|run COMMAND...  the container of a TrainJob: `prepare` where needed, then `run`; once in a pod
# The agent of the run takes over where there is a Python of at least 3.8; otherwise the command itself does.
#
# Signals: no child is in the background, and none takes long, so a signal leaves nothing behind. The first process of a
# container ignores every signal that it has no handler for. Any other ends by TERM, and needs none: right before an `exec`
# a shell would forget what its handler was told.

[ "$$" -ne 1 ] || trap 'exit 143' TERM

root=${PHALANX_POD_ROOT:-/phalanx} shared_memory=/dev/shm
[ "$root" = /phalanx ] || shared_memory=$root/shm
mode=${1:-run} step=
[ "$#" -eq 0 ] || shift
if [ "$mode" = train-job ]; then
  step=${1:-run}
  [ "$#" -eq 0 ] || shift
fi

say() {
  printf 'phalanx: %s\n' "$1" >&2
}

fits() {
  [ -n "$1" ] && "$1" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 8))' >/dev/null 2>&1
}

# An image need not have a name for our user, and many programs ask for it.
if [ -z "${USER:-}${LOGNAME:-}" ]; then
  USER=$(id -un 2>/dev/null) || USER=phalanx
  LOGNAME=$USER
  export USER LOGNAME
fi

for python in "${PHALANX_PYTHON:-}" python3 python /usr/local/bin/python3 /usr/bin/python3 /opt/conda/bin/python3; do
  if fits "$python"; then
    case $mode in
    prepare) exec "$python" -I -S "$root/agent/agent.pyz" --prepare ;;
    train-job) exec "$python" -I -S "$root/agent/agent.pyz" --train-job "$step" ;;
    enter) exec "$python" -I -S "$root/agent/agent.pyz" --enter "$@" ;;
    *) exec "$python" -I -S "$root/agent/agent.pyz" --pod ;;
    esac
  fi
done

if [ "$mode" = enter ]; then
  say "no Python of at least 3.8 in this image: use \`kubectl exec\`"
  exit 126
fi

# What place.json says, without anything but a shell to read it: paths of ours, which have no quotes in them.
working= steps=yes
if [ -r "$root/job/place.json" ]; then
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in
    *'"working": "'*)
      working=${line#*'"working": "'}
      working=${working%%'"'*}
      ;;
    esac
    case $line in
    *'"steps": []'*) steps= ;;
    esac
  done <"$root/job/place.json"
fi

# The kubelet restarts a TrainJob's container: see train_job.py of the agent. Without an agent there is no end to report.
if [ "$mode" = train-job ]; then
  if [ -e "$shared_memory/.phalanx-begun" ]; then
    trap 'exit 143' TERM
    say "what ran in this pod has ended, and is not started again"
    seconds=600
    while [ "$seconds" -gt 0 ]; do
      sleep 1 # a shell acts on a signal when a command has ended: a short one
      seconds=$((seconds - 1))
    done
    exit 1
  fi
  { true >"$shared_memory/.phalanx-begun"; } 2>/dev/null
fi

if [ "${step:-$mode}" = prepare ]; then
  if [ -n "$steps" ]; then
    say "build steps need a Python of at least 3.8, and this image has none: name an image that has what they install"
    exit 78
  fi
  if [ ! -f "$root/bundle/code.tar.gz" ]; then
    say "fetching the code needs a Python of at least 3.8, and this image has none: use an image with Python, or one with the code in it"
    exit 78
  fi
  if ! command -v tar >/dev/null 2>&1; then
    say "this image has neither Python nor tar, so the code cannot be unpacked: use an image with one of them, or one with the code in it"
    exit 78
  fi
  mkdir -p "$root/code"
  # It may come in pieces: code.tar.gz, code.tar.gz.1 and so on.
  cat "$root"/bundle/code.tar.gz* | tar -xzf - -C "$root/code" || {
    say "the code could not be unpacked"
    exit 78
  }
  [ "$mode" = train-job ] || exit 0
fi

if [ "$#" -eq 0 ]; then
  say "there is no command, and no Python of at least 3.8 in this image to read it from the plan"
  exit 78
fi
say "no Python of at least 3.8 in this image: the command runs without an agent, so there are no metrics of it"
if [ -n "$working" ]; then
  cd "$working" || exit 78
fi
unset PHALANX_RUN_TOKEN
if [ "$1" = bash ] && ! command -v bash >/dev/null 2>&1; then
  shift
  exec /bin/sh "$@"
fi
exec "$@"
