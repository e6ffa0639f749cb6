"""How long earlier runs of the command of a group took, for commands that estimate what it will cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phalanx.errors import CallError, SystemFault

if TYPE_CHECKING:
    from phalanx.plan import Plan
    from phalanx.spec import Spec
    from phalanx.submission.earlier_times import EarlierTimes


def earlier_runs(loaded: Spec, made: Plan) -> EarlierTimes | None:
    """Those in the home of this machine; `made` is the plan of a run of the group."""
    from phalanx.cli.workspace.base import selected_server
    from phalanx.cli.workspace.open_home import open_home
    from phalanx.home.home import default_home
    from phalanx.submission.earlier_times import earlier_times

    if selected_server() is not None or not default_home().is_dir():
        return None
    try:
        home, store = open_home()
        with store:
            return earlier_times(home, store, loaded, made)
    except (CallError, SystemFault):  # an estimate does not need the home
        return None
