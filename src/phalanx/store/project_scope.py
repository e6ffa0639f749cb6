"""Nested projects: `team/vision` is inside of `team`."""

from __future__ import annotations


def enclosing_projects(project: str) -> list[str]:
    """The project and those that it is nested in: `team/vision` and `team`."""
    steps = project.split("/")
    return ["/".join(steps[:count]) for count in range(len(steps), 0, -1)]


class ProjectScope(frozenset[str]):
    """Projects with all that are nested in them. Rights on `team` are rights on `team/vision`."""

    __slots__ = ()

    def __contains__(self, project: object) -> bool:
        return isinstance(project, str) and not self.isdisjoint(enclosing_projects(project))
