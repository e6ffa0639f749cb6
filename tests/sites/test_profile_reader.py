"""Profiles are read with all faults at once, hostile ones quickly, and written so that they read back."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.errors import SpecErrors
from phalanx.sites.model import FORBIDDEN, GpuKind, NodeKind, Partition, Qos, Site, is_slice
from phalanx.sites.profile_reader import load
from phalanx.sites.profile_writer import memory_text, time_text, write
from tests.examples import examples

SMALL = b"""
name: mine
date: 2026-01-31
nodes:
  - {count: 4, cpus: 8, memory: 32Gi, gpus: 2, gpu_type: a100, other_gpus: {a100_1g.5gb: 7}, partitions: [main]}
partitions:
  - {name: main, default: true, max_time: 1d12h}
gpu_types:
  - {name: a100, cpus: 4, memory: 16Gi, aliases: [big]}
  - {name: a100_1g.5gb}
policy: {time: required, partition: forbidden, gpu_option: gres, time_steps: [3h, 1h], submit_interval: 1.5s}
wheelhouse: [/wheels/generic, /wheels/avx2]
writable: SCRATCH
"""


def faults(text: bytes) -> list[str]:
    with pytest.raises(SpecErrors) as caught:
        load("site.yml", text)
    return [str(error) for error in caught.value.errors]


def test_a_profile_becomes_a_site() -> None:
    site = load("site.yml", SMALL)
    assert site.nodes == (NodeKind(4, 8, 32768.0, 2, "a100", partitions=("main",), other_gpus=(("a100_1g.5gb", 7),)),)
    assert site.partitions == (Partition("main", 129_600.0, is_default=True),)
    assert (site.time_required, site.partition, site.gpu_option) == (True, FORBIDDEN, "gres")
    assert site.time_steps_s == (3600.0, 10_800.0)
    assert site.submit_interval_s == 1.5
    assert site.wheelhouse == "/wheels/generic:/wheels/avx2"
    assert site.writable == ("SCRATCH",)
    assert site.gpu_types == ("a100", "a100_1g.5gb")
    assert site.gpu("big") == site.gpu("a100")
    assert site.gpu("a100_1g.5gb") == GpuKind("a100_1g.5gb", is_mig=True)
    assert site.gpu("h100") is None


def test_a_name_is_all_that_a_profile_needs() -> None:
    assert load("site.yml", b"name: bare") == Site("bare")


def test_all_faults_come_at_once_with_place_and_hint() -> None:
    found = faults(
        b"""
nmae: x
nodes: [{cpus: many, memory: 4Gi}, {memory: 1Gi, partitions: [mian]}]
partitions: [{name: main}, {name: main}]
policy: {time: sometimes, partiton: forbidden, max_time: soon}
scratch: $SCRATCH
wheelhouse: wheels
date: yesterday
"""
    )
    text = "\n".join(found)
    assert "site.yml:2:1: nmae: unknown key `nmae` in a site's profile (did you mean `name`?)" in text
    assert "a site's profile needs `name`" in text
    assert "nodes[0].cpus: expected a whole number" in text
    assert "nodes[1].cpus: a kind of nodes needs `cpus`" in text
    assert "`partitions` has no partition `mian` (did you mean `main`?)" in text
    assert "the partition `main` is duplicated" in text
    assert "policy.time: expected one of optional, required" in text
    assert "unknown key `partiton` in policy (did you mean `partition`?)" in text
    assert "policy.max_time: expected a time" in text
    assert "scratch: expected the name of an environment variable, without `$`" in text
    assert "wheelhouse: expected the whole path of a folder" in text
    assert "date: expected a date as 2026-01-31" in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "the file is empty (`phalanx site init` writes a profile of this cluster)"),
        (b"[1, 2]", "a profile must be a map of sections, such as `name: mycluster`"),
        (b"name: a\n---\nname: b", "has a second YAML document"),
        (b"name: [", "not valid YAML"),
        (b"\xff\xfe\x00", "not a text file"),
        (b"x" * (1 << 21), "larger than 1 MiB"),
        (b"name: {a: b}", "name: expected a name"),
        (b"name: !!python/object:os.system x", "the YAML tag"),
        (b"name: x\nnotes: ['a\\x1b[2J']", ""),
        (b"name: 'rm -rf /; x'", "a name without spaces or quotes"),
        (b"name: x\ninterface: 'ib0; rm'", "the name of a network interface"),
        (b"name: x\nmodules: ['python; rm']", "the name of a module"),
        (b'name: x\nwheelhouse: "/a\'; rm"', "the whole path of a folder"),
        (b"name: x\nnodes: [{cpus: 1, memory: 1Gi, other_gpus: {'$(x)': 1}}]", "is not a valid GPU type"),
        (b"name: x\nnodes: [{cpus: -1, memory: 1Gi}]", "a whole number"),
        (b"name: x\nnodes: [{cpus: 1, memory: .inf}]", "an amount of memory"),
    ],
)
def test_what_is_no_profile_is_reported(text: bytes, said: str) -> None:
    if said:
        assert said in "\n".join(faults(text))
    else:
        load("site.yml", text)  # a backslash in single quotes is a backslash


def test_control_characters_have_no_place_in_a_profile() -> None:
    assert "one line of text" in "\n".join(faults(b'name: x\ntitle: "a\\x1b[2Jb"'))


def test_aliases_that_unfold_for_ever_are_an_error_at_once() -> None:
    layers = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 12))
    started = time.process_time()
    assert faults(f"name: x\nl0: &l0 [1, 2, 3, 4, 5, 6, 7, 8, 9]\n{layers}".encode())
    assert time.process_time() - started < 5.0


NAMES = st.from_regex(r"[A-Za-z0-9_.@+:-]{1,20}", fullmatch=True)
TIMES = st.integers(0, 10_000_000).map(float)
MEMORY = st.integers(1, 10_000_000).map(float)
SENTENCES = st.text(st.characters().filter(str.isprintable), min_size=1, max_size=40)
GPUS = st.builds(
    GpuKind, NAMES, st.none() | st.integers(1, 64).map(float), st.none() | MEMORY, st.booleans(),
    st.lists(NAMES, unique=True, max_size=2).map(tuple),
)  # fmt: skip
PARTITIONS = st.builds(
    Partition, NAMES, st.none() | st.integers(1, 10**7).map(lambda halves: halves / 2), st.booleans(),
    st.none() | TIMES.filter(bool), st.none() | TIMES, st.none() | st.integers(1, 100), st.booleans(), st.booleans(),
    st.lists(NAMES, unique=True, max_size=2).map(tuple), st.lists(NAMES, unique=True, max_size=2).map(tuple),
)  # fmt: skip
NODES = st.builds(
    NodeKind, st.none() | st.integers(1, 1000), st.integers(1, 256), MEMORY, st.integers(0, 16), st.none() | NAMES,
    st.lists(NAMES, unique=True, max_size=2).map(tuple), st.just(()),
    st.dictionaries(NAMES, st.integers(0, 8), max_size=2).map(lambda found: tuple(found.items())),
)  # fmt: skip
FACTS: dict[str, st.SearchStrategy[Any]] = {
    "name": NAMES,
    "title": st.none() | SENTENCES,
    "nodes": st.lists(NODES, max_size=3).map(tuple),
    "partitions": st.lists(PARTITIONS, max_size=3, unique_by=lambda part: part.name).map(tuple),
    "gpus": st.lists(GPUS, max_size=3).map(tuple),
    "qos": st.lists(
        st.builds(Qos, NAMES, st.none() | TIMES.filter(bool), st.none() | st.integers(0, 9), st.none(), st.none()),
        max_size=2,
    ).map(tuple),
    "time_required": st.booleans(),
    "max_time_s": st.none() | TIMES,
    "accounts": st.lists(NAMES, unique=True, max_size=3).map(tuple),
    "partition": st.sampled_from(["forbidden", "optional", "required"]),
    "gpu_multiple": st.none() | st.integers(1, 8),
    "het_jobs": st.booleans(),
    "default_memory_mib": st.none() | MEMORY,
    "internet": st.none() | st.booleans(),
    "wheelhouse": st.none() | st.just("/a/b:/c d"),
    "notes": st.lists(SENTENCES, max_size=2).map(tuple),
}
SITES = st.fixed_dictionaries(FACTS).map(lambda values: Site(**values))


@examples(60)
@given(SITES)
def test_what_is_written_reads_back(site: Site) -> None:
    text = write(site, {"": "A comment.", "nodes": "nodes", "more": "the end"})
    assert load("site.yml", text.encode()) == site


@examples(150)
@given(st.text(max_size=300))
def test_no_text_breaks_the_reader(text: str) -> None:
    with suppress(SpecErrors):
        load("site.yml", text.encode("utf-8", "surrogatepass"))


def test_amounts_are_written_as_people_write_them() -> None:
    assert [time_text(seconds) for seconds in (0, 90, 5400, 86_400, 90_061, 1.5)] == [
        "0s", "1m30s", "1h30m", "1d", "1d1h1m1s", "1.5s",
    ]  # fmt: skip
    assert [memory_text(mib) for mib in (500, 1024, 32_768, 510_000, 0.5)] == [
        "500Mi", "1Gi", "32Gi", "510000Mi", "0.5Mi",
    ]  # fmt: skip


def test_slices_are_known_by_their_names() -> None:
    assert is_slice("a100_1g.5gb")
    assert is_slice("nvidia_h100_80gb_hbm3_3g.40gb")
    assert not is_slice("h100")
    assert not is_slice("h100_80gb")


def test_profiles_are_package_data() -> None:
    import phalanx.sites

    folder = Path(phalanx.sites.__file__).parent / "profiles"
    assert {file.suffix for file in folder.iterdir()} == {".yml"}
