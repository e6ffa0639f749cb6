# How every container of a run begins. Arguments: run|prepare [COMMAND...]. Nothing of the user's stands in this file.
# The agent of the run takes over where there is a Python of at least 3.8; otherwise the command itself does.

root=${PHALANX_POD_ROOT:-/phalanx}
mode=${1:-run}
[ "$#" -eq 0 ] || shift

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
    *) exec "$python" -I -S "$root/agent/agent.pyz" --pod ;;
    esac
  fi
done

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

if [ "$mode" = prepare ]; then
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
  tar -xzf "$root/bundle/code.tar.gz" -C "$root/code" || {
    say "the code could not be unpacked"
    exit 78
  }
  exit 0
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
