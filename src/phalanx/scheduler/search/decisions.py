"""Asks a search for its next actions; one that needs packages is asked in a process of its own, without waiting."""

from __future__ import annotations

from typing import NamedTuple

from phalanx.home.journal import JournaledFolder
from phalanx.scheduler.group_state import GroupState, entries_of
from phalanx.tune import suggestions
from phalanx.tune.decision import decide, packages
from phalanx.tune.model import Finish, SearchAction, SearchSettings


class SearchDecision(NamedTuple):
    actions: list[SearchAction]
    seen_up_to: int  # number of the last record that it knows


class SearchProcess:
    """Asks only if the history or the number of free slots has changed since the last answer."""

    def __init__(self, folder: JournaledFolder, settings: SearchSettings) -> None:
        self.folder = folder
        self.settings = settings
        self.is_apart = bool(packages(settings.algorithm))
        self.answered = (-1, -1)  # length of the history and free slots of the last question
        self.asked: tuple[int, int, int] | None = None  # the same and the last record, of a question under way
        self.process: suggestions.SuggestionProcess | None = None

    def ask(self, state: GroupState) -> SearchDecision | None:
        """None if there is nothing to decide, or the answer is not there yet. Raises SuggestionFault."""
        now = (state.history.length, state.free_slots)
        if not self.is_apart:
            if now == self.answered:
                return None
            self.answered = now
            return SearchDecision(decide(self.settings, state.history, state.free_slots), state.seq)
        if self.process is None or self.asked is None:
            if now != self.answered:
                entries = [entry for record in self.folder.records() for entry in entries_of(record)]
                self.process = suggestions.start(self.settings, entries, state.free_slots)
                self.asked = (*now, state.seq)
            return None
        if not self.process.is_done:
            return None
        process, asked, self.process = self.process, self.asked, None
        self.answered = asked[:2]
        actions = process.actions()
        if asked[0] != state.history.length:  # something happened meanwhile: the search may not be over
            actions = [action for action in actions if not isinstance(action, Finish)]
        return SearchDecision(actions, asked[2])

    def close(self) -> None:
        if self.process is not None:
            self.process.stop()
            self.process = None
