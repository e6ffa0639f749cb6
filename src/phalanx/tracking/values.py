"""Converts logged values to numbers and JSON without importing other libraries. Standard library only, Python 3.8+."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from phalanx.tracking.notices import plain_name

LONGEST_NAME = 500
LONGEST_TEXT = 1 << 20  # characters of one param or text
LARGEST = 4 << 20  # approximate bytes of one value stored as JSON
MOST_NUMBERS = 20_000_000  # of one histogram
DEEPEST = 8
PLAIN = (float, int, str, bool)
HOLDERS = (list, tuple, set, frozenset)
MORE = "…"  # replaces recursive or too deep values
_UNREAD = object()


class NotANumber(Exception):
    """A value that cannot be recorded. The message says why."""


class guarded:  # noqa: N801 - used like `contextlib.suppress`
    """Catches everything raised inside, by this package or any library, and passes it to `report`, not to training."""

    __slots__ = ("_kind", "_report")

    def __init__(self, report: Callable[[BaseException], object], kind: type[BaseException] = Exception) -> None:
        self._report = report
        self._kind = kind

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: Any, fault: BaseException | None, __: Any) -> bool:
        if not isinstance(fault, self._kind):
            return False
        self._report(fault)
        return True


def result_of(call: Callable[[], Any], otherwise: Any) -> Any:
    """The result of a call of third-party code; `otherwise` if it raises anything."""
    with guarded(_ignore):
        return call()
    return otherwise


def _ignore(_: BaseException) -> None:
    pass


def error_text(fault: BaseException) -> str:
    """The message of an exception in one line. Its `__str__` may be third-party code that fails."""
    text = result_of(lambda: str(getattr(fault, "strerror", None) or fault), "")
    return " ".join(text.split())[:200] or type(fault).__name__


def named_fault(fault: BaseException) -> str:
    """The message with the name of the exception's class."""
    name, words = type(fault).__name__, error_text(fault)
    return name if words == name else f"{name}: {words}"


def clean(text: str) -> str:
    """Text that every file, database and page accepts: without NUL and lone surrogates."""
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode("utf-8")
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in text else text


def is_plain(value: Any) -> bool:
    """Whether a value is a plain Python number: the most common case."""
    kind = type(value)
    return kind in PLAIN or kind.__module__ == "numpy"


def flat(values: Any, between: str, before: str = "", above: tuple[int, ...] = ()) -> Iterator[Any]:
    """The names and values of nested mappings, lazily: they may be endless."""
    for key, value in (mapping_of(values) or {}).items():
        name = f"{before}{key}"
        if is_plain(value) or len(above) >= DEEPEST or not mapping_of(value):
            yield name, value
        elif id(value) in above or value is values:
            yield name, MORE
        else:
            yield from flat(value, between, f"{name}{between}", (*above, id(values)))


def mapping_of(value: Any) -> Mapping[Any, Any] | None:
    """A mapping of named items: from a mapping, a dataclass, an argparse.Namespace. None also for what cannot be
    inspected, such as a dead weak proxy."""
    with guarded(_ignore):
        if isinstance(value, Mapping):
            return value
        fields = getattr(type(value), "__dataclass_fields__", None)
        if isinstance(fields, dict):
            return {name: getattr(value, name, None) for name in fields}
        if type(value).__name__ in ("Namespace", "SimpleNamespace"):
            return dict(vars(value))
    return None


def short_name(name: Any) -> str:
    text = name if isinstance(name, str) else str(name)
    if not text:
        raise NotANumber("a name must not be empty")
    if not text.isprintable():  # cheap, for every metric of every step
        text = plain_name(text)
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"


def number(value: Any) -> float:
    """Raises NotANumber if it is not a number."""
    try:
        reader = _reader(value)
        return float(value if reader is None else reader())
    except Exception as fault:  # noqa: BLE001 - code of any library, which may raise anything
        raise NotANumber(f"a {type(value).__name__} is not one number ({error_text(fault)[:100]})") from None


def numbers(values: Mapping[Any, Any] | None, drop: Callable[[str], None]) -> dict[str, float]:
    """The values that are numbers; `drop` is called for the others."""
    found = {}
    for key, value in (values or {}).items():
        try:
            found[short_name(key)] = number(value)
        except NotANumber as fault:
            drop(f"{short_name(key)[:100]}: {fault}")
    return found


def _reader(value: Any) -> Callable[[], Any] | None:
    """The method that reads a tensor or an array of one element."""
    for name in ("item", "asscalar", "numpy"):
        reader = getattr(value, name, None)
        if callable(reader):
            found: Callable[[], Any] = reader
            return found
    return None


def later(value: Any) -> Callable[[], Any] | None:
    """For a value that an accelerator may still be computing: how to read it later without blocking now.
    None for all others. What may be changed in place meanwhile is copied on its device. Raises NotANumber, and what the
    library raises."""
    if getattr(value, "is_cpu", None) is False and _reader(value) is not None:  # PyTorch
        count = value.numel() if callable(getattr(value, "numel", None)) else 1
        if count != 1:  # checked before it is copied, to save accelerator memory
            raise NotANumber(f"a {type(value).__name__} of {count} values is not one number")
        copied: Callable[[], Any] = value.detach().clone().item
        return copied
    if callable(getattr(value, "is_ready", None)):  # JAX; its arrays never change
        return None if value.is_ready() else _reader(value)
    if any(kind in str(getattr(value, "device", "")) for kind in ("GPU:", "TPU:")):  # TensorFlow
        read_value = getattr(value, "read_value", None)  # a variable may change
        return _reader(read_value() if callable(read_value) else value)
    return None


def as_json(value: Any, most: int = LARGEST) -> Any:
    """The closest JSON value; text for everything else. NaN and infinities stay numbers. Raises NotANumber for what is
    larger than `most` bytes, and any exception of the value's own code."""
    return Conversion(most).of(value)


class Conversion:
    def __init__(self, most: int = LARGEST) -> None:
        self.most = self.left = most
        self.above: list[int] = []  # containers of the current value

    def of(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, int) and value.bit_length() > 64:  # many readers could not parse it as a number
            return self._text(str(value) if value.bit_length() <= 4096 else hex(value))
        if value is None or isinstance(value, (int, float)):
            self._spend(8)
            return value
        if id(value) in self.above or (len(self.above) >= DEEPEST and isinstance(value, (*HOLDERS, Mapping))):
            return self._text(MORE)  # not its text, which may be endless
        if len(self.above) >= DEEPEST:
            return self._text(str(value))
        self.above.append(id(value))
        try:
            return self._inside(value)
        finally:
            self.above.pop()

    def _inside(self, value: Any) -> Any:
        self._spend(8)
        inside = mapping_of(value)
        if inside is not None:
            return {self._text(str(key)): self.of(item) for key, item in inside.items()}
        if isinstance(value, HOLDERS):
            return [self.of(item) for item in value]
        reader = _reader(value)
        read = _UNREAD if reader is None else result_of(reader, _UNREAD)
        return self._text(str(value)) if read is _UNREAD else self.of(read)  # an array of several: its text is enough

    def _text(self, text: str) -> str:
        short = short_text(text)
        self._spend((len(short) if short.isascii() else 2 * len(short.encode())) + 3)  # approximate size in JSON
        return short

    def _spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise NotANumber(f"larger than {self.most >> 20} MiB")


def short_text(text: str) -> str:
    return clean(text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…")


def params_of(given: Any) -> Mapping[Any, Any]:
    """Params from a mapping, an argparse.Namespace or a dataclass. Raises NotANumber."""
    if given is None:
        return {}
    found = mapping_of(given)
    if found is not None:
        return found
    if hasattr(given, "items"):
        return dict(given.items())
    if not hasattr(given, "__dict__"):
        raise NotANumber(f"a {type(given).__name__} has no params")
    return dict(vars(given))


def some_of(values: Iterable[Any], most: int) -> list[Any]:
    """All items. Raises NotANumber for more than `most`: they may be endless."""
    found = list(islice(values, most + 1))
    if len(found) > most:
        raise NotANumber(f"more than {most:,} of them")
    return found


def numbers_of(values: Any) -> list[float]:
    """Every number of a list, an array or a tensor, at any depth. Raises NotANumber."""
    listed = values
    if hasattr(values, "tolist"):  # other objects have a `detach`, too: it would close an open file
        for name in ("detach", "cpu", "ravel", "tolist"):
            step = getattr(listed, name, None)
            listed = step() if callable(step) else listed
    found: list[float] = []
    waiting = [iter(listed if hasattr(listed, "__iter__") else [listed])]
    while waiting:
        for item in waiting[-1]:
            if isinstance(item, (list, tuple)):
                waiting.append(iter(item))
                break
            found.append(item if type(item) is float else number(item))
            if len(found) > MOST_NUMBERS:
                raise NotANumber(f"more than {MOST_NUMBERS:,} values")
        else:
            waiting.pop()
        if len(waiting) > 100:
            raise NotANumber("nested too deeply")
    return found


def histogram(values: Any, bins: int = 64) -> tuple[list[float], list[int], int]:
    """Edges and counts of equal bins over the finite values, and the number of others."""
    numbers = numbers_of(values)
    finite = [value for value in numbers if math.isfinite(value)]
    if not finite:
        return [0.0, 1.0], [0], len(numbers)
    low, high = min(finite), max(finite)
    width = (high - low) / bins
    if not (width > 0 and math.isfinite(width)):
        return [low, high if high > low else low + 1.0], [len(finite)], len(numbers) - len(finite)
    counts = [0] * bins
    for value in finite:
        counts[min(bins - 1, int((value - low) / width))] += 1
    return [low + width * place for place in range(bins)] + [high], counts, len(numbers) - len(finite)
