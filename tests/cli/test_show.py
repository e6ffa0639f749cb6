from __future__ import annotations

from tests.cli.homes import THREE, Place, place_fixture  # noqa: F401 - found by its name


def test_it_shows_what_became_of_every_replica(place: Place) -> None:
    run_id = place.ran('[ "$RANK" != 1 ] || exit 3; sleep 20', framework="pytorch", environment=THREE, name="f.yml")
    answer = place.call("show", run_id)
    assert answer.code == 0
    assert "failed: worker-0: exit code 3" in answer.out
    rows = {line.split()[0]: line for line in answer.out.splitlines() if line.startswith(("master-", "worker-"))}
    assert "exit code 3" in rows["worker-0"]
    assert "stopped" in rows["master-0"]
    assert "stopped" in rows["worker-1"]


def test_json_has_replicas_statuses_and_the_folder(place: Place) -> None:
    run_id = place.ran("exit 5", "--name", "mine", params={"lr": 0.1})
    data = place.call("show", "mine", "--json").data
    assert (data["ok"], data["id"], data["params"]) == (False, run_id, {"lr": 0.1})
    (replica,) = data["replicas"]
    assert (replica["name"], replica["cause"], replica["code"]) == ("master-0", "error", 5)
    assert data["statuses"][-1]["reason"] == "master-0: exit code 5"
    assert data["folder"] == str(place.home / "runs" / run_id)


def test_ids_can_be_shortened_and_names_serve_too(place: Place) -> None:
    place.remember("abcd2", name="lenet")
    place.remember("xyz34")
    for word in ("abcd2", "abc", "a", "lenet"):
        assert place.quick("show", word, "--json").data["id"] == "abcd2"


def test_what_can_be_several_runs_names_them_all(place: Place) -> None:
    place.remember("abcd2", name="twice")
    place.remember("abce3", name="twice")
    for word in ("abc", "twice"):
        answer = place.quick("show", word)
        assert answer.code == 2
        assert "abcd2" in answer.err
        assert "abce3" in answer.err
    assert place.call("show", "abcd", "--json").data["id"] == "abcd2"


def test_an_unknown_run_is_a_clear_error(place: Place) -> None:
    answer = place.call("show", "nobody")
    assert answer.code == 2
    assert "there is no run `nobody`" in answer.err
    assert place.call("show", "nobody", "--json").data["ok"] is False
