"""Stand-ins for modules of the standard library that others import at their top and seldom use.

Importing click is most of a short command, and a third of that are `inspect` (with `ast`, `dis` and `tokenize`) and
`uuid`, for a few calls that most commands never make. While click and the module of a verb are imported, stand-ins take
the place of these modules. A stand-in imports its module when one of its attributes is first used.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any


class DeferredModule(ModuleType):
    """Has the given attributes, and those of the module, which is imported for the first of them."""

    def __init__(self, name: str, **attributes: Any) -> None:
        super().__init__(name)
        vars(self).update(attributes)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system looks for these
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


@contextmanager
def deferred(*modules: DeferredModule) -> Iterator[None]:
    """Modules that are imported inside get these, except for those that are loaded already. Nothing of what importing
    makes is garbage, so no garbage is collected, and all that exists now is exempt from later collections."""
    used = [module for module in modules if sys.modules.setdefault(module.__name__, module) is module]
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()
        for module in used:
            if sys.modules.get(module.__name__) is module:
                del sys.modules[module.__name__]


@contextmanager
def rarely_used_deferred() -> Iterator[None]:
    uuid = DeferredModule("uuid", UUID=object)
    inspect = DeferredModule("inspect", cleandoc=_cleandoc)
    translations = DeferredModule("gettext", gettext=_untranslated, ngettext=_untranslated_plural)
    urls = DeferredModule("urllib.parse", quote_from_bytes=_quote_from_bytes)
    try:
        with deferred(inspect, uuid, translations, urls):
            yield
    finally:
        del uuid.UUID  # only for the class of click that names it as the argument of its base


def _cleandoc(text: str) -> str:
    """click calls it for the help text of every option. One line needs no cleaning."""
    if "\n" not in text and "\t" not in text and not text.startswith(" "):
        return text
    from inspect import cleandoc

    return cleandoc(text)


def _untranslated(message: str) -> str:
    """click looks for translations of its messages. There are none beside the English of Phalanx."""
    return message


def _untranslated_plural(one: str, many: str, count: int) -> str:
    return one if count == 1 else many


def _quote_from_bytes(*arguments: Any) -> str:
    """`pathlib` of Python 3.11 imports it, for `Path.as_uri`."""
    from urllib.parse import quote_from_bytes

    return quote_from_bytes(*arguments)
