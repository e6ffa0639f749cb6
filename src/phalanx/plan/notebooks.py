"""The command of a notebook: the user's own Jupyter. The agent adds where it listens, and its token."""

from __future__ import annotations

from phalanx.spec.model import CollectOptions, Spec

PAGES = {"lab": "/lab", "notebook": "/tree"}  # by Jupyter's command, which Polyaxon's files name as `backend`

CHANGES = CollectOptions(collect=("*",))  # in a pod, whose folder is a copy: what was changed comes home as outputs


def server_of(spec: Spec) -> str:
    return spec.backend if spec.backend in PAGES else "lab"


def page_of(spec: Spec) -> str:
    """The path of its page."""
    return PAGES[server_of(spec)]


def argv_of(spec: Spec) -> tuple[str, ...]:
    return ("jupyter", server_of(spec), "--no-browser", *_idle_options(spec.environment.idle_s))


def _idle_options(idle_s: float | None) -> tuple[str, ...]:
    """Jupyter's own settings: idle kernels and terminals end first, also with an open page, then the server."""
    if idle_s is None:
        return ()
    allowed = max(1, round(idle_s))
    interval = max(1, min(60, allowed // 4))
    return (
        f"--MappingKernelManager.cull_idle_timeout={allowed}",
        f"--MappingKernelManager.cull_interval={interval}",
        "--MappingKernelManager.cull_connected=True",
        f"--TerminalManager.cull_inactive_timeout={allowed}",
        f"--TerminalManager.cull_interval={interval}",
        f"--ServerApp.shutdown_no_activity_timeout={allowed}",
    )
