"""A profile is found by path, name, variable or home."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.errors import CallError, SpecErrors
from phalanx.sites import find
from phalanx.sites.model import Site
from phalanx.sites.profile_search import added, locate, shipped

NOTHING = Site("nothing")
PUBLISHED = ("fir", "narval", "nibi", "rorqual", "tamia", "trillium", "vulcan")


@pytest.fixture(autouse=True)
def without_a_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PHALANX_SITE", raising=False)


def test_no_one_has_said_where_we_are(tmp_path: Path) -> None:
    assert find(None, tmp_path) is None
    assert find(None, tmp_path / "missing") is None


def test_the_home_says_where_we_are(tmp_path: Path) -> None:
    (tmp_path / "site.yml").write_text("name: mine")
    found = find(None, tmp_path)
    assert found is not None
    assert found.name == "mine"
    assert find("mine", tmp_path) == found


def test_a_variable_wins_over_the_home_and_a_name_over_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site.yml").write_text("name: mine")
    monkeypatch.setenv("PHALANX_SITE", "narval")
    assert (find(None, tmp_path) or NOTHING).name == "narval"
    assert (find("fir", tmp_path) or NOTHING).name == "fir"
    monkeypatch.setenv("PHALANX_SITE", "")
    assert (find(None, tmp_path) or NOTHING).name == "mine"


def test_a_profile_in_the_home_wins_over_one_that_came_with_phalanx(tmp_path: Path) -> None:
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / "narval.yml").write_text("name: narval\ntitle: ours")
    (tmp_path / "sites" / "readme.txt").write_text("no profile")
    assert list(added(tmp_path)) == ["narval"]
    assert (find("narval", tmp_path) or NOTHING).title == "ours"


def test_a_path_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other.yml").write_text("name: other")
    assert (find(str(tmp_path / "other.yml"), tmp_path) or NOTHING).name == "other"
    monkeypatch.chdir(tmp_path)
    assert (find("other.yml", tmp_path) or NOTHING).name == "other"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("narvall", "unknown site profile `narvall`: did you mean `narval`?"),
        ("somewhere", "use one of fir, narval"),
        ("missing/file.yml", "cannot read the profile missing/file.yml: no such file or directory"),
        ("/", "is a directory"),
    ],
)
def test_what_is_not_there_is_reported_kindly(name: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(CallError, match=said):
        find(name, tmp_path)


def test_a_wrong_profile_is_one_error_to_those_who_use_it_and_all_faults_to_those_who_look(tmp_path: Path) -> None:
    (tmp_path / "site.yml").write_text("name: x\nnodse: []\npolciy: {}")
    with pytest.raises(CallError, match=r"site\.yml:2:1: nodse.*did you mean `nodes`.*1 more"):
        find(None, tmp_path)
    found = locate(None, tmp_path)
    assert found is not None
    with pytest.raises(SpecErrors) as caught:
        found.read()
    assert len(caught.value.errors) == 2


def test_the_profiles_that_came_with_phalanx() -> None:
    assert tuple(shipped()) == PUBLISHED


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_shipped_profile_says_when_and_where_its_facts_were_found(name: str) -> None:
    site = shipped()[name].read()
    assert site.name == name
    assert site.date == "2026-09-23"
    assert site.source == "a transcription of the Alliance's public documentation"
    assert site.nodes
    assert {kind.gpu_type for kind in site.nodes if kind.gpus} <= set(site.gpu_types)
    assert not any(kind.gpus and not kind.gpu_type for kind in site.nodes)


def test_what_is_known_of_public_clusters() -> None:
    sites = {name: found.read() for name, found in shipped().items()}
    day = 86_400.0
    assert {name: site.max_time_s for name, site in sites.items()} == {
        "fir": 7 * day, "narval": 7 * day, "nibi": 7 * day, "rorqual": 7 * day,
        "tamia": day, "trillium": day, "vulcan": 7 * day,
    }  # fmt: skip
    offline = {name for name, site in sites.items() if site.internet is False}
    assert offline == {"narval", "rorqual", "tamia", "trillium"}
    shares = {name: (kind.cpus, kind.memory_mib) for name, site in sites.items() for kind in site.gpus[:1]}
    known = {"fir": (12, 280 * 1024), "narval": (12, 124 * 1024), "rorqual": (16, 124 * 1024)}
    assert known.items() <= shares.items()
    assert {name for name, site in sites.items() if site.whole_nodes} == {"tamia", "trillium"}
    assert sites["trillium"].gpu_multiple == 4
    assert (sites["trillium"].max_jobs, sites["trillium"].max_submitted) == (150, 500)
    assert sites["trillium"].writable == ("SCRATCH",)
    assert all(sites[name].one_mig_per_job for name in ("fir", "narval", "nibi", "rorqual"))
    assert all(site.submit_interval_s >= 1 for name, site in sites.items() if name != "vulcan")
