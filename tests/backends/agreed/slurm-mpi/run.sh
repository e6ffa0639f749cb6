#!/bin/bash
#SBATCH --job-name=r-1
#SBATCH --comment=phalanx:r-1
#SBATCH --open-mode=append
#SBATCH --ntasks=4
#SBATCH --cpus-per-task=2
#SBATCH --mem-per-cpu=500M
# Run r-1: 4 of 2 CPUs, 1000 MiB
# Submit it in the folder of the code: sbatch run.sh. Logs and outputs go beside this script, below replicas/ and
# outputs/; the agent in job/ needs a Python of at least 3.8. Arguments: [FOLDER [ATTEMPT [FIRST]]].
fail() {
  echo "phalanx: $*" >&2
  exit 1
}
here=${1:-}
job=${SLURM_ARRAY_TASK_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
job=${job:-$SLURM_JOB_ID}
if [ -z "$here" ]; then # Slurm runs a copy of this script, and knows where it came from
  here=$(scontrol show job "$job" | sed -n 's/^ *Command=//p' | head -n 1)
  here=${here%/*}
fi
[ -f "$here/job/agent.pyz" ] || fail "there is no job/agent.pyz in '$here': keep it beside run.sh"
python=
at_least_3_8() {
  "$1" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 8) or print(sys.executable))' 2>/dev/null
}
# One that is a script (that of pyenv, for example) takes longer to start than Python itself.
is_script() {
  local begin
  IFS= read -rn 2 begin <"$(command -v "$1")" && [ "$begin" = "#!" ]
}
direct=
is_script python3 2>/dev/null && direct=${PHALANX_FOUND_PYTHON:-}
for found in "${PHALANX_PYTHON:-}" "$direct" python3 python3.12 python3.11 python3.9 "${PHALANX_FOUND_PYTHON:-}"; do
  [ -n "$found" ] && itself=$(at_least_3_8 "$found") && python=$found && break
done
[ -n "$python" ] || fail "no Python of at least 3.8 on this node: load a module, or set PHALANX_PYTHON"
[ -x "$itself" ] && python=$itself
umask 077
# The coordinator claims an attempt: one job runs it, even if two were submitted. A job that Slurm starts again is the
# next attempt. It hears where all ranks are and writes that down for them; its end is that of the job.
coproc coordinator {
  trap '' TERM
  exec "$python" -I -S -c 'import sys; sys.path.insert(0, sys.argv[1]); from phalanx.agent.jobs.coordinator import main; sys.exit(main(sys.argv[2:]))' "$here/job/agent.pyz" "$here" "${2:-by-hand}" "${3:-${2:-1}}"
}
coordinator_pid=$!
exec {to}>&"${coordinator[1]}"- {from}<&"${coordinator[0]}"-
read -r attempt <&"$from" || fail "cannot run an attempt in '$here'"
[ -n "$attempt" ] || exit 0
agent=("$python" -I -S "$here/job/agent.pyz" "$here/plan.json" "$here/job/attempt-$attempt.json")
said=$here/job/attempt-$attempt.srun
# The options of sbatch must not apply to a step of several components.
unset SLURM_MEM_PER_CPU SLURM_MEM_PER_NODE SLURM_MEM_PER_GPU SLURM_NTASKS_PER_NODE SLURM_EXPORT_ENV
step() { # tries again while the controller is away: then no rank has started
  local code until=$((SECONDS + 300))
  while :; do
    {
      start "$@" 2>&1 >&3 3>&- | (trap '' TERM && exec tee "$said" >&2)
      code=${PIPESTATUS[0]}
    } 3>&1
    if [ "$code" -eq 0 ] || [ "$SECONDS" -ge "$until" ] || compgen -G "$here/replicas/*/attempt-$attempt/agent.json" >/dev/null; then break; fi
    grep -Eq 'Unable to (create step|confirm allocation).*: (Unable to contact|Socket timed out|Zero Bytes|Connection refused|Transport endpoint|Communication connection|Unexpected message|Slurm backup)' "$said" || break
    sleep 5
  done
  rm -f "$said"
  return "$code"
}
start() {
  srun --ntasks=4 --cpus-per-task=2 --mem=0 --export=ALL --mpi="$1" --kill-on-bad-exit=1 --distribution=block "${agent[@]}" "${@:2}"
}
step pmix --join <&"$from" >&"$to"
exec {to}>&- {from}<&-
wait "$coordinator_pid"
code=$?
if [ "$code" -eq 85 ]; then # the time of this segment is over, that of the run is not
  scontrol requeue "$job" && sleep 60
fi
exit "$code"
