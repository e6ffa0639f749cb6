"""Groups and their trials for Python: of a server, and of its home."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

import phalanx
from phalanx import Client
from phalanx.client import RequestRefused
from phalanx.errors import CallError
from tests.server.site import Site
from tests.server.started import until

VALUE = '{{ "1e999 - 1e999" if x == 2 else x }}'
LOG = f"{sys.executable} -c 'from phalanx import tracking; tracking.log(loss={{{{ seed }}}} + {VALUE})'"
LOSS = {"name": "loss", "optimization": "minimize"}


def begin(client: Client, command: str, **tuning: Any) -> str:
    content = {
        "version": 1,
        "kind": "group",
        "hptuning": {"matrix": {"x": {"values": [3.0, 1.0, 2.0]}}, "metric": LOSS, **tuning},
        "environment": {"resources": {"cpu": {"requests": 0.01}}},
        "run": {"cmd": command},
    }
    return client.submit([("group.yml", json.dumps(content))], name="search").run.id


@pytest.fixture(name="over", scope="module")
def over_fixture(site: Site) -> str:
    """A search that has ended; no test changes it."""
    with Client(site.url, site.token) as client:
        group = begin(client, LOG, concurrency=6, repeat=2)
    until(site, group, "succeeded")
    return group


@pytest.mark.slow
def test_a_server_and_its_home_show_the_same_trials(site: Site, client: Client, over: str) -> None:
    remote = client.group("search")
    assert (remote.id, remote.status, remote.counts, remote.repeats) == (over, "succeeded", {"reported": 3}, 2)
    best = remote.best()[0]
    assert (best.trial, best.params, best.value, len(best.runs)) == (1, {"x": 1.0}, 1.5, 2)
    assert best.interval == pytest.approx((1.5 - 6.353, 1.5 + 6.353))
    assert [trial.trial for trial in remote.trials("value")] == [1, 0, 2]
    assert [trial.trial for trial in remote.best(9)] == [1, 0], "NaN is no result"
    with phalanx.open(site.home.path) as home:
        local = home.group("search")
        assert list(map(repr, local.trials())) == list(map(repr, remote.trials()))
        assert local.summary["best"] == remote.summary["best"]
        with pytest.raises(CallError, match="is not a group"):
            home.group(best.run)
    frame = remote.frame()
    assert list(frame["value"][:2]) == [3.5, 1.5]
    assert {"trial", "run", "low", "high", "params.x"} <= set(frame.columns)


@pytest.mark.slow
def test_a_group_of_a_server_is_changed(site: Site, client: Client) -> None:
    group = client.group(begin(client, "sleep 60; echo {{ x }}"))
    until(site, group.id, "running")
    group.pause()
    assert group.paused == "by tester"
    group.set_concurrency(2)
    group.extend(2)
    group.add({"x": 7})
    assert (group.concurrency, group.total) == (2, 3)
    with pytest.raises(RequestRefused, match="not in the matrix"):
        group.add({"y": 7})
    group.resume()
    assert group.paused is None
    group.finish()
    client.stop(group.id)
    until(site, group.id, "stopped")
    group.refresh()
    assert group.status == "stopped"
    with pytest.raises(RequestRefused, match="has ended"):
        group.pause()
