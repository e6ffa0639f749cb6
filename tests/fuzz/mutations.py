"""Makes cases: takes a seed file, changes its tree and its text at random, adds files and params.

Most changes keep a file nearly valid, so that it gets past the reader: values come from the same place of other files,
and few changes are made at once. Everything follows from the random generator: the same number makes the same case.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from random import Random

from phalanx.errors import PhalanxError
from phalanx.spec import load
from tests.fuzz import vocabulary
from tests.fuzz.cases import Case
from tests.fuzz.yaml_trees import Map, Prefixed, Spot, Tree, bare, copy, maps, parse, spots, to_text


class Seeds:
    """The files to start from, and what stands under which key in them."""

    def __init__(self, texts: Iterable[str]) -> None:
        parsed = (parse(text) for text in dict.fromkeys(texts))
        self.trees = [tree for tree in parsed if tree is not None]
        whole = [tree for tree in self.trees if _loads(tree)]
        self.valid = len(whole)
        self.bases = [*whole * 20, *self.trees]  # mostly files without errors: their mutants get further
        self.entries: Mapping[str, list[list[Tree]]] = defaultdict(list)  # pairs that were found below a key
        self.values: Mapping[str, list[Tree]] = defaultdict(list)  # values of a key
        for tree in whole or self.trees:
            for parent, each in maps(tree):
                self.entries[parent].extend(each)
                for name, value in each:
                    self.values[name].append(value)
        self.everything = [pair for pairs in self.entries.values() for pair in pairs]


def _loads(tree: Tree) -> bool:
    try:
        load([("seed.yml", to_text(tree).encode())])
    except PhalanxError:
        return False
    return True


class Mutation:
    """One case in the making: a tree, and the random generator that changes it."""

    def __init__(self, rng: Random, seeds: Seeds) -> None:
        self.rng = rng
        self.seeds = seeds
        self.tree: Map = copy(rng.choice(seeds.bases))
        self.names = sorted({
            name for key, each in maps(self.tree) if key in ("params", "declarations", "matrix") for name, _ in each
        })  # fmt: skip

    # what is there -------------------------------------------------------------------------------------------

    def a_spot(self) -> Spot | None:
        found = list(spots(self.tree))
        return self.rng.choice(found) if found else None

    def a_map(self) -> tuple[str, Map]:
        return self.rng.choice(list(maps(self.tree)))

    def a_filled_map(self) -> Map | None:
        filled = [each for _, each in maps(self.tree) if each]
        return self.rng.choice(filled) if filled else None

    def a_pair(self, below: str) -> list[Tree]:
        """A key with a value: mostly one that other files have in the same place."""
        known = self.seeds.entries.get(below)
        name, value = self.rng.choice(known if known and self.rng.random() < 0.7 else self.seeds.everything)
        return [name, copy(value)]

    def a_value(self) -> Tree:
        chance = self.rng.random()
        if chance < 0.75:
            return vocabulary.scalar(self.rng, self.names)
        if chance < 0.85:
            return [self.a_value() for _ in range(self.rng.randrange(3))]
        return Map([vocabulary.key(self.rng), self.a_value()] for _ in range(self.rng.randrange(3)))

    # changes -------------------------------------------------------------------------------------------------

    def drop_key(self) -> None:
        if each := self.a_filled_map():
            del each[self.rng.randrange(len(each))]

    def double_key(self) -> None:
        if each := self.a_filled_map():
            name, value = self.rng.choice(each)
            each.insert(self.rng.randrange(len(each) + 1), [name, copy(value)])

    def rename_key(self) -> None:
        if each := self.a_filled_map():
            pair = self.rng.choice(each)
            pair[0] = vocabulary.key(self.rng) if self.rng.random() < 0.5 else vocabulary.typo(self.rng, pair[0])

    def move_key(self) -> None:
        if each := self.a_filled_map():
            pair = each.pop(self.rng.randrange(len(each)))
            _, target = self.a_map()
            self._put(target, [pair[0], copy(pair[1])])

    def add_pair(self) -> None:
        below, each = self.a_map()
        self._put(each, self.a_pair(below))

    def _put(self, each: Map, pair: list[Tree]) -> None:
        """Add an entry, mostly instead of one with the same key."""
        same = [position for position, (name, _) in enumerate(each) if name == pair[0]]
        if same and self.rng.random() < 0.9:
            each[same[0]] = pair
        else:
            each.insert(self.rng.randrange(len(each) + 1), pair)

    def add_odd_pair(self) -> None:
        _, each = self.a_map()
        self._put(each, [vocabulary.key(self.rng), self.a_value()])

    def swap_in(self) -> None:
        """A value that another file has for the same key."""
        spot = self.a_spot()
        if spot is not None and (known := self.seeds.values.get(spot.key)):
            spot.put(copy(self.rng.choice(known)))

    def replace_value(self) -> None:
        if spot := self.a_spot():
            spot.put(self.a_value())

    def set_number(self) -> None:
        numbers = [spot for spot in spots(self.tree) if isinstance(spot.value, str) and spot.value.isdigit()]
        if numbers:
            spot = self.rng.choice(numbers)
            change: Callable[[int], object] = self.rng.choice(
                (lambda n: n + 1, lambda n: -n, lambda n: n * 50, lambda n: n / 3, lambda _: 0, lambda n: f"'{n}'")
            )
            spot.put(str(change(int(spot.value[:12]))))

    def set_template(self) -> None:
        if spot := self.a_spot():
            spot.put(vocabulary.quoted(vocabulary.template(self.rng, self.names)))

    def name_params(self) -> None:
        """Params that use each other, or are missing."""
        chain = [["a", "'{{ b }}'"], ["b", self.a_value()], ["c", "'{{ a }}{{ lr }}'"]]
        self._put(self.tree, ["params", Map(chain[: self.rng.randrange(1, 4)])])

    def wrap(self) -> None:
        if spot := self.a_spot():
            value = spot.value
            wrapped = [value] if self.rng.random() < 0.5 else Map([[vocabulary.key(self.rng), value]])
            spot.put(wrapped)

    def unwrap(self) -> None:
        deep = [spot for spot in spots(self.tree) if not isinstance(bare(spot.value), str) and bare(spot.value)]
        if deep:
            spot = self.rng.choice(deep)
            inner = self.rng.choice(bare(spot.value))
            spot.put(copy(inner[1] if isinstance(bare(spot.value), Map) else inner))

    def repeat(self) -> None:
        lists = [bare(spot.value) for spot in spots(self.tree) if type(bare(spot.value)) is list and bare(spot.value)]
        if lists:
            each = self.rng.choice(lists)
            item = self.rng.choice(each)
            each.extend(copy(item) for _ in range(self.rng.choice((1, 1, 2, 5, 150))))

    def swap_values(self) -> None:
        one, other = self.a_spot(), self.a_spot()
        if one is not None and other is not None:
            value = copy(other.value)
            other.put(copy(one.value))
            one.put(value)

    def anchor(self) -> None:
        """An anchor, and aliases or a merge of it elsewhere."""
        spot = self.a_spot()
        if spot is None:
            return
        spot.put(Prefixed("&a", spot.value))
        for _ in range(self.rng.randrange(3)):
            if self.rng.random() < 0.5:
                self.a_map()[1].append(["<<", self.rng.choice(("*a", "[*a, *a]", "*b", "{a: 1}", "1"))])
            elif other := self.a_spot():
                other.put("*a")

    def tag(self) -> None:
        if spot := self.a_spot():
            tags = (
                "!!str",
                "!!int",
                "!!map",
                "!!seq",
                "!!null",
                "!!omap",
                "!x",
                "!",
                "!!python/tuple",
                "&a",
                "&a !!str",
            )
            spot.put(Prefixed(self.rng.choice(tags), spot.value))

    def nest(self) -> None:
        if spot := self.a_spot():
            value = spot.value
            for _ in range(self.rng.choice((3, 10, 61, 70, 200))):
                value = [value] if self.rng.random() < 0.5 else Map([["a", value]])
            spot.put(value)

    def many(self) -> None:
        """Many keys or items."""
        count = self.rng.choice((20, 300, 2_000))
        _, each = self.a_map()
        each.extend([f"k{number}", "'{{ a }}'" if count < 1_000 else "1"] for number in range(count))

    def mutate(self) -> None:
        for _ in range(self.rng.choice((1, 1, 1, 1, 1, 2, 2, 3))):
            self.rng.choice(CHANGES)(self)


_WEIGHTS: Mapping[Callable[[Mutation], None], int] = {
    Mutation.drop_key: 6, Mutation.double_key: 1, Mutation.rename_key: 4, Mutation.move_key: 3, Mutation.add_pair: 16,
    Mutation.add_odd_pair: 4, Mutation.swap_in: 18, Mutation.replace_value: 14, Mutation.set_number: 10,
    Mutation.set_template: 8, Mutation.name_params: 3, Mutation.wrap: 4, Mutation.unwrap: 4, Mutation.repeat: 3,
    Mutation.swap_values: 4, Mutation.anchor: 3, Mutation.tag: 2, Mutation.nest: 1,
}  # fmt: skip
CHANGES = [change for change, weight in _WEIGHTS.items() for _ in range(weight)]
RARE = 0.002  # of the files hold thousands of values: they take longer


# text ------------------------------------------------------------------------------------------------------------


def _cut(rng: Random, text: str) -> str:
    start = rng.randrange(len(text) + 1)
    return text[:start] + text[start + rng.choice((1, 1, 5, 20, len(text))) :]


def _insert(rng: Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(vocabulary.PIECES) + text[at:]


def _double(rng: Random, text: str) -> str:
    lines = text.splitlines(keepends=True) or [""]
    line = rng.choice(lines)
    lines.insert(rng.randrange(len(lines) + 1), line)
    return "".join(lines)


def _indent(rng: Random, text: str) -> str:
    lines = text.splitlines(keepends=True) or [""]
    at = rng.randrange(len(lines))
    lines[at] = rng.choice((" ", "  ", "\t", "- ")) + lines[at] if rng.random() < 0.6 else lines[at].lstrip()
    return "".join(lines)


TEXT_CHANGES: tuple[Callable[[Random, str], str], ...] = (
    _cut, _insert, _insert, _insert, _double, _indent,
    lambda _, text: text.replace("\n", "\r\n"), lambda _, text: text.replace("\n", "\r"),
    lambda _, text: text + "---\n" + text, lambda _, text: text + "\n" * 5_000,
)  # fmt: skip
ENCODINGS: tuple[Callable[[str], bytes], ...] = (
    lambda text: b"\xef\xbb\xbf" + text.encode("utf-8", "replace"),
    lambda text: text.encode("utf-16", "replace"),
    lambda text: text.encode("utf-16-be", "replace"),
    lambda text: text.encode("utf-32", "replace"),
    lambda text: text.encode("latin-1", "replace"),
    lambda text: text.encode("utf-8", "surrogatepass"),
    lambda text: text.encode("utf-8", "replace")[:-1] + b"\xc3",
    lambda text: text.encode("utf-8", "replace").replace(b"e", b"\xff", 1),
    lambda text: text.encode("utf-8", "replace") + b"\x00",
    lambda text: text.encode("utf-8", "replace") + b"# " + b"x" * (1 << 20),
)


def make_case(rng: Random, seeds: Seeds) -> Case:
    """One case, as the random generator has it."""
    mutation = Mutation(rng, seeds)
    mutation.mutate()
    if rng.random() < RARE:
        mutation.many()
    files = [_file(rng, mutation.tree)]
    if rng.random() < RARE / 4:
        files = [("yml", vocabulary.LAUGHS.encode() + files[0][1])]
    if rng.random() < 0.15:  # a second file over it: mostly a part of one
        other = Mutation(rng, seeds)
        other.tree = copy(mutation.tree) if rng.random() < 0.4 else other.tree
        kept = [pair for pair in other.tree if rng.random() < 0.5]
        other.tree = Map(kept)
        other.mutate()
        files.insert(rng.randrange(2), _file(rng, other.tree))
    count = rng.choice((0, 0, 0, 0, 0, 1, 2))
    return Case(tuple(files), tuple(vocabulary.param(rng, mutation.names) for _ in range(count)))


def _file(rng: Random, tree: Tree) -> tuple[str, bytes]:
    text = to_text(tree, flow=rng.random() < 0.08)
    if rng.random() < 0.1:
        for _ in range(rng.choice((1, 1, 2, 4))):
            text = rng.choice(TEXT_CHANGES)(rng, text)
    ending = "json" if rng.random() < 0.03 else "yml"
    if rng.random() < 0.02:
        return ending, rng.choice(ENCODINGS)(text)
    return ending, text.encode("utf-8", "replace")
