"""Notifications of real runs, through the command line and a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.homes import Place, place_fixture, wait_for  # noqa: F401 - found by its name
from tests.notifications.sinks import HttpSink, http_sink, smtp_sink
from tests.server.site import Site
from tests.server.started import file_of, start, until


def settings(home: Path, text: str) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.yml").write_text(text)


def events(sink: HttpSink) -> list[tuple[str, str]]:
    rows = [json.loads(one.body) for one in sink.got]
    return [(row["run"]["kind"], row["event"]) for row in rows]


def test_a_failed_run_tells_a_webhook_and_show_says_so(place: Place) -> None:
    with http_sink() as sink:
        settings(place.home, "webhooks: {127.0.0.1: {private: true}}\n")
        rule = {"webhook": f"http://127.0.0.1:{sink.port}/hook", "on": ["failed"]}
        run_id = place.ran("echo out of luck; exit 3", notify=[rule, {"command": ["false"], "on": "succeeded"}])
        wait_for(lambda: sink.got)
        data = json.loads(sink.got[0].body)
        assert (data["run"]["id"], data["failure"]["why"]) == (run_id, "exit code 3")

        def states() -> list[str]:
            return [row["state"] for row in place.quick("notify", run_id, "--json").data["notifications"]]

        wait_for(lambda: states() == ["sent"])
    assert "notified   of failed, by webhook to http://127.0.0.1" in place.quick("show", run_id).out
    assert len(sink.got) == 1


@pytest.mark.slow
def test_a_failing_notifier_does_not_hurt_the_run_and_is_shown_by_doctor(place: Place) -> None:
    settings(place.home, "notify: [{command: [/nowhere/program]}]\n")
    run_id = place.ran("true")
    assert place.quick("show", run_id, "--json").data["status"] == "succeeded"
    wait_for(lambda: "notified   of succeeded, by command" in place.quick("show", run_id).out)
    checked = place.call("doctor", "--json").data
    assert any("/nowhere/program" in problem for problem in checked["problems"])
    settings(place.home, "notify: [{command: [true], when: failed}]\n")
    said = place.call("doctor").out
    assert "unknown key `when`" in said


@pytest.mark.slow
def test_a_group_tells_once_and_trials_only_if_asked(place: Place) -> None:
    with http_sink() as sink:
        settings(place.home, "webhooks: {127.0.0.1: {private: true}}\n")
        url = f"http://127.0.0.1:{sink.port}/"
        search = {"matrix": {"x": {"values": [1, 2, 3]}}, "concurrency": 3}
        place.ran("true", kind="group", hptuning=search, notify=[{"webhook": url}])
        wait_for(lambda: sink.got)
        assert events(sink) == [("group", "succeeded")]
        sink.got.clear()
        place.ran("true", kind="group", hptuning=search, notify=[{"webhook": url, "trials": True}])
        wait_for(lambda: len(sink.got) == 4)
    assert sorted(events(sink)) == [*[("experiment", "succeeded")] * 3, ("group", "succeeded")]


def test_rules_are_tested_without_a_run(place: Place) -> None:
    nothing = place.quick("notify", "--test")
    assert (nothing.code, "there are no rules" in nothing.err) == (2, True)
    with smtp_sink() as sink:
        mail = f"mail: {{from: a@example.org, smtp: 127.0.0.1, port: {sink.port}, tls: none}}\n"
        settings(place.home, mail + "projects: {team: {notify: [{mail: ana@example.org}, {command: [false]}]}}\n")
        answer = place.quick("notify", "--test", "--project", "team/vision", "--json")
    assert answer.code == 2
    assert [(row["by"], row["ok"]) for row in answer.data["results"]] == [("mail", True), ("command", False)]
    ((recipients, text),) = sink.got
    assert (recipients, "this is a test" in text) == (["ana@example.org"], True)
    both = place.quick("notify", "x", "--test")
    assert (both.code, "name a run, or" in both.err) == (2, True)


def test_slurm_sends_mail_itself_if_asked(place: Place) -> None:
    rule = {"mail": ["ana@example.org", "bo@example.org"], "on": ["failed", "stopped"], "by": "slurm"}
    file = place.file("true", notify=[rule])
    assert place.call("plan", "-f", file, "--on", "slurm", "--output", "job").code == 0
    script = (place.folder / "job" / "run.sh").read_text()
    assert "#SBATCH --mail-type=FAIL,END\n" in script
    assert "#SBATCH --mail-user=ana@example.org,bo@example.org\n" in script


def submitted(site: Site, *rules: dict[str, Any]) -> Any:
    files = [file_of("true", f"notify: {json.dumps(rules)}\n")]
    return site.ask("POST", "/api/v1/runs/submit", json={"files": files})


@pytest.mark.slow
def test_a_server_refuses_what_a_file_may_not_bring(tmp_path: Path) -> None:
    with Site(tmp_path) as site, http_sink() as sink:
        (site.home.path / "config.yml").write_text(
            "webhooks: {127.0.0.1: {private: true}, chat: {url: 'https://chat.example.org/x'}}\n"
            "mail: {recipients: ['@example.org']}\n"
        )
        refused = submitted(
            site,
            {"command": ["touch", "/tmp/owned"]},
            {"webhook": "http://localhost/"},
            {"webhook": "other"},
            {"mail": "ana@elsewhere.org"},
            {"mail": "evil@not-example.org"},
        )
        faults = [fault["message"] for fault in refused.json()["faults"]]
        assert (refused.status_code, len(faults)) == (422, 5), faults
        assert "cannot run commands there" in faults[0]
        allowed = {"webhook": f"http://127.0.0.1:{sink.port}/"}
        run_id = submitted(site, allowed).json()["id"]
        until(site, run_id)
        wait_for(lambda: sink.got)
        assert json.loads(sink.got[0].body)["run"]["id"] == run_id
        assert submitted(site, {"webhook": "chat", "on": []}).status_code == 422


def test_ops_of_a_pipeline_bring_no_command_along(tmp_path: Path) -> None:
    template = {"name": "t", "kind": "job", "run": {"cmd": "true"}, "notify": [{"command": ["x"], "trials": True}]}
    ops = [{"name": "a", "template": {"name": "t"}}]
    file = {"version": 1, "kind": "pipeline", "templates": [template], "ops": ops}
    with Site(tmp_path) as site:
        body = {"files": [{"name": "polyaxonfile.yml", "text": json.dumps(file)}]}
        refused = site.ask("POST", "/api/v1/runs/submit", json=body)
    assert (refused.status_code, "cannot run commands there" in refused.text) == (422, True), refused.text


@pytest.mark.slow
def test_a_restart_through_a_server_does_not_bring_a_command_along(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        run_id = start(site, "true")["id"]
        until(site, run_id)
        spec = site.home.run(run_id).path / "spec.yml"
        spec.write_text(spec.read_text() + f"notify: [{{command: [touch, {tmp_path}/owned]}}]\n")
        again = site.ask("POST", f"/api/v1/runs/{run_id}/restart").json()["id"]
        until(site, again)
        wait_for(lambda: site.get(f"/api/v1/runs/{again}")["facts"].get("notifications"))
        (row,) = site.get(f"/api/v1/runs/{again}")["facts"]["notifications"]
    assert (row["state"], "cannot run commands" in row["why"]) == ("failed", True)
    assert not (tmp_path / "owned").exists()
