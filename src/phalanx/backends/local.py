"""This machine: every replica a process here, found at 127.0.0.1 by a port of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from shlex import quote

from phalanx.backends import Job
from phalanx.placeholders import Value, unfold
from phalanx.plan.encoding import document
from phalanx.plan.model import Plan, Replica

_HERE = "${BASH_SOURCE[0]}"
_START = """\
#!/usr/bin/env bash
# Starts all replicas of run {run_id} on this machine and waits for them. Run it in the folder of the code.
# Logs and outputs go beside this script. PHALANX_BASE_PORT moves the ports (29400 and up).
here=$(cd -- "$(dirname -- "{here}")" && pwd) || exit 1
mkdir -p -- "$here/logs" "$here/outputs"
workers=() helpers=()
start() {{
  bash "$here/replicas/$1.sh" >"$here/logs/$1.log" 2>&1 &
}}
end_all() {{
  kill -- "${{workers[@]}}" "${{helpers[@]}}" 2>/dev/null
  wait 2>/dev/null
}}
trap 'end_all; exit 143' INT TERM
{starts}
code=0 running=("${{workers[@]}}")
while [ "$code" -eq 0 ] && [ "${{#running[@]}}" -gt 0 ]; do
  sleep 0.1
  still=()
  for pid in "${{running[@]}}"; do
    if kill -0 "$pid" 2>/dev/null; then still+=("$pid"); else wait "$pid" || code=$?; fi
  done
  running=(${{still[@]+"${{still[@]}}"}})
done
end_all
echo "run {run_id} ended with code $code; logs in $here/logs"
exit "$code"
"""
_REPLICA = """\
#!/usr/bin/env bash
# {name}, rank {rank} of {size}, of run {run_id}
here=$(cd -- "$(dirname -- "{here}")/.." && pwd) || exit 1
base_port=${{PHALANX_BASE_PORT:-29400}}
{exports}
exec {argv}
"""


class Local:
    def render(self, plan: Plan) -> Job:
        ranks = {replica.name: replica.rank for replica in plan.replicas}
        running = [replica for replica in plan.replicas if replica.argv]
        files = {
            "plan.json": json.dumps(document(plan), indent=1) + "\n",
            "hostfile": f"127.0.0.1 slots={len(plan.replicas)}\n",
            "start.sh": _start_script(plan, running),
        }
        for replica in running:
            files[f"replicas/{replica.name}.sh"] = _replica_script(plan, replica, ranks)
        return Job(files, start="bash {folder}/start.sh")


def _start_script(plan: Plan, running: list[Replica]) -> str:
    """Parameter servers serve for ever: the run is over when everyone else is done."""
    lines = []
    for replica in running:
        kind = "workers" if replica.role in ("master", "worker") else "helpers"
        lines.append(f"start {quote(replica.name)}; {kind}+=($!)")
    return _START.format(run_id=_comment(plan.run_id), here=_HERE, starts="\n".join(lines))


def _replica_script(plan: Plan, replica: Replica, ranks: Mapping[str, int]) -> str:
    def shell(value: Value) -> str:
        return "".join(_words(value, plan, ranks)) or "''"

    exports = [f"export {name}={shell(value)}" for name, value in {**plan.shared, **replica.environment}.items()]
    exports += [f'export {name}="${{{name}:-{value}}}"' for name, value in replica.defaults.items()]
    return _REPLICA.format(
        name=replica.name,
        rank=replica.rank,
        size=len(plan.replicas),
        run_id=_comment(plan.run_id),
        here=_HERE,
        exports="\n".join(exports),
        argv=" ".join(shell(argument) for argument in replica.argv),
    )


def _words(value: Value, plan: Plan, ranks: Mapping[str, int]) -> Iterator[str]:
    """A value in shell quotes; only holes are left for the shell to fill in."""
    for part in unfold(value, plan.members):
        if isinstance(part, str):
            if part:
                yield quote(part)
        elif part.kind == "host":
            yield "127.0.0.1"
        elif part.kind == "port":
            yield f"$((base_port + {ranks[part.of]}))"
        else:
            yield f'"$here"/{quote(part.of)}'


def _comment(text: str) -> str:
    return "".join(character if character.isalnum() or character in "-_." else "_" for character in text)


BACKEND = Local()
