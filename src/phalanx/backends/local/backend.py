"""The local backend: every replica is a process on this machine, at 127.0.0.1 with its own port."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from phalanx import agent, run_paths
from phalanx.backends.contract import Backend, Connections, Engine, Job
from phalanx.naming import LAUNCHER
from phalanx.placeholders import Each, Hole, Value, unfold
from phalanx.plan.document import document, document_text
from phalanx.plan.model import Plan, Replica, one_of_each, template_of
from phalanx.plan.variable_limit import AddressLengths, refuse_too_long

# Positional parameters carry the folder and the port: unlike variables, they cannot collide with a user's variable.
_PREAMBLE = """\
here=$(cd -- "$(dirname -- "${{BASH_SOURCE[0]}}"){up}" && pwd) || exit 1
case $here in *[\\"\\\\]*) echo "the folder's name has quotes or backslashes in it: $here" >&2; exit 1;; esac
base=${{PHALANX_BASE_PORT:-29400}}
case $base in *[!0-9]*) echo "PHALANX_BASE_PORT is not a number: $base" >&2; exit 1;; esac
set -- "$here" "$base"
"""
_START = """\
#!/usr/bin/env bash
# Starts all replicas of run {run_id} on this machine and waits for them. Run it in the folder of the code.
# Logs and outputs go beside this script. PHALANX_BASE_PORT moves the ports (29400 and up).
set -m # every replica in a process group of its own, so that nothing of it is left behind
{preamble}mkdir -p -- "$1/logs" "$1/outputs"
workers=() helpers=()
start() {{
  bash "$here/replicas/$1.sh" >"$here/logs/$1.log" 2>&1 </dev/null &
}}
tell() {{
  for pid in "${{workers[@]}}" "${{helpers[@]}}"; do kill "$1" -- "-$pid" 2>/dev/null; done
}}
any_left() {{
  for pid in "${{workers[@]}}" "${{helpers[@]}}"; do kill -0 -- "-$pid" 2>/dev/null && return 0; done
  return 1
}}
end_all() {{
  tell -TERM
  for _ in $(seq 100); do any_left || break; sleep 0.1; done
  tell -KILL
  wait 2>/dev/null
}}
told= # while replicas are started a signal only leaves word: one that is not on its list yet would not be ended
trap 'told=yes' INT TERM HUP
{starts}
trap 'end_all; exit 143' INT TERM HUP
[ -z "$told" ] || {{ end_all; exit 143; }}
code=0 running=("${{workers[@]}}")
while [ "$code" -eq 0 ] && [ "${{#running[@]}}" -gt 0 ]; do
  sleep 0.1
  still=()
  for pid in "${{running[@]}}"; do
    if kill -0 "$pid" 2>/dev/null; then still+=("$pid"); else wait "$pid" || code=$?; fi
  done
  running=(${{still[@]+"${{still[@]}}"}})
  for pid in ${{helpers[@]+"${{helpers[@]}}"}}; do # they serve for ever; one that failed fails the run
    kill -0 "$pid" 2>/dev/null || wait "$pid" || code=$?
  done
done
end_all 2>/dev/null
echo "run {run_id} ended with code $code; logs in $1/logs"
exit "$code"
"""
_REPLICA = """\
#!/usr/bin/env bash
# {name}, rank {rank} of {size}, of run {run_id}
{preamble}. "$1/shared.sh"
{exports}
exec {argv}
"""
_SHARED = """\
# What all replicas of run {run_id} have in common.
{lines}
"""
_FIRST_LIST = 3  # positional parameter of the first list
ADDRESSES = AddressLengths(host=len("127.0.0.1"), port=5)


class Local(Backend):
    name = "local"

    def render(self, plan: Plan, target: Any = None) -> Job:  # noqa: ARG002
        refuse_too_long(plan, ADDRESSES)
        running = [replica for replica in plan.replicas if replica.argv and starts_itself(plan, replica)]
        script = _Script(plan, running)
        files = {
            run_paths.PLAN: document_text(document(plan)),
            "start.sh": _start_script(plan, running),
            "shared.sh": _SHARED.format(run_id=_comment(plan.run_id), lines="\n".join(script.shared())),
        }
        if plan.launch != "each":
            files |= host_files(sum(replica.role != LAUNCHER for replica in plan.replicas))
        if plan.service is not None:
            files["rendezvous.json"] = json.dumps(dict(plan.service)) + "\n"
            files["rendezvous.py"] = Path(agent.__file__).with_name("rendezvous.py").read_text(encoding="utf-8")
        for replica in running:
            files[f"replicas/{replica.name}.sh"] = script.of(replica)
        return Job(files, start="bash {folder}/start.sh")

    def engine(self, target: Any, connections: Connections) -> Engine | None:  # noqa: ARG002
        return None


def starts_itself(plan: Plan, replica: Replica) -> bool:
    """Whether the script starts the replica, not a launcher."""
    return plan.launch != "mpirun" or replica.role == LAUNCHER


def host_files(slots: int) -> dict[str, str]:
    """The hosts of a run as a hostfile for mpirun, and as a discovery script for horovodrun."""
    return {run_paths.HOSTFILE: f"127.0.0.1 slots={slots}\n", run_paths.HOSTS_SCRIPT: f"echo localhost:{slots}\n"}


def _start_script(plan: Plan, running: list[Replica]) -> str:
    """Replicas that only serve may never exit: the run has finished when all others have."""
    lines = []
    if plan.service is not None:
        words = 'python3 "$1/rendezvous.py" 127.0.0.1 "$2" <"$1/rendezvous.json"'
        lines.append(f'{words} >"$1/logs/rendezvous.log" 2>&1 & helpers+=($!)')
    for replica in running:
        kind = "helpers" if replica.role in plan.serving else "workers"
        lines.append(f"start {quote(replica.name)}; {kind}+=($!)")
    return _START.format(run_id=_comment(plan.run_id), preamble=_PREAMBLE.format(up=""), starts="\n".join(lines))


class _Script:
    """The scripts of replicas. A list of all addresses is as long as the run is large: `shared.sh` has it once, as a
    positional parameter."""

    def __init__(self, plan: Plan, running: list[Replica]) -> None:
        self.plan = plan
        self.ranks = {replica.name: replica.rank for replica in plan.replicas}
        self.lists: dict[Each, str] = {}
        variables = (plan.shared, *(template_of(replica) for replica in one_of_each(running)))
        for value in (value for values in variables for value in values.values() if not isinstance(value, str)):
            for part in value:
                if isinstance(part, Each) and part not in self.lists:
                    self.lists[part] = f"${{{len(self.lists) + _FIRST_LIST}}}"

    def shared(self) -> Iterator[str]:
        members = self.plan.members
        for part in self.lists:
            words = "".join(self._words(unfold((part,), members))) or "''"
            yield f'set -- "$@" {words}'
        yield from self._exports(self.plan.shared)

    def of(self, replica: Replica) -> str:
        exports = list(self._exports(replica.environment))
        for name, value in replica.defaults.items():  # unlike `:-`, an assignment keeps quotes
            exports.append(f'[ -n "${{{name}:-}}" ] || export {name}={self._shell(value)}')
        return _REPLICA.format(
            name=replica.name,
            rank=replica.rank,
            size=len(self.plan.replicas),
            run_id=_comment(self.plan.run_id),
            preamble=_PREAMBLE.format(up="/.."),
            exports="\n".join(exports),
            argv=" ".join(map(self._shell, replica.argv)),
        )

    def _exports(self, environment: Mapping[str, Value]) -> Iterator[str]:
        return (f"export {name}={self._shell(value)}" for name, value in environment.items())

    def _shell(self, value: Value) -> str:
        return "".join(self._words((value,) if isinstance(value, str) else value)) or "''"

    def _words(self, parts: Iterable[str | Hole | Each]) -> Iterator[str]:
        """A value in shell quotes; the shell expands only the placeholders."""
        for part in parts:
            if isinstance(part, str):
                if part:
                    yield quote(part)
            elif isinstance(part, Each):
                yield f'"{self.lists[part]}"'
            elif part.kind == "host":
                yield "127.0.0.1"
            elif part.kind == "interface":
                yield "lo"
            elif part.kind == "port":
                yield f'"$(($2 + {self.ranks[part.of]}))"'
            else:
                yield f'"$1"/{quote(part.of)}'


def _comment(text: str) -> str:
    return "".join(character if character.isalnum() or character in "-_." else "_" for character in text)


BACKEND = Local()
