from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phalanx.server.routes import snapshots
from phalanx.server.run_environment import environment_for_runs, without_secrets
from tests.server.site import Site
from tests.server.started import file_of, log_of, sent, start, until

SUBMIT = "/api/v1/runs/submit"


def refusal(site: Site, status: int, **body: Any) -> Any:
    answer = site.ask("POST", SUBMIT, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_a_file_that_is_sent_runs_and_its_run_is_the_senders(site: Site) -> None:
    run = start(
        site,
        "echo lr is {{ lr }}",
        "params:\n  lr: 0.5\n",
        params={"lr": 0.25},
        name="first",
        description="a try",
        tags=["a", "b"],
        project="mine",
        priority=3,
        timeout="2m",
    )
    assert (run["user"], run["name"], run["project"], run["priority"]) == ("tester", "first", "mine", 3)
    assert (run["tags"], run["description"], run["waits_for"]) == (["a", "b"], "a try", None)
    done = until(site, run["id"])
    assert done["status"] == "succeeded", done["reason"]
    assert done["params"] == {"lr": 0.25}
    assert "lr is 0.25" in log_of(site, run["id"])
    assert site.get(f"/api/v1/runs/{run['id']}/plan")["timeout_s"] == 120


def test_later_files_are_laid_over_earlier_ones(site: Site) -> None:
    over = {"name": "over.yml", "text": "version: 1\nkind: experiment\nrun:\n  cmd: echo second\n"}
    run = site.post(SUBMIT, {"files": [file_of("echo first"), over]}, 201)
    until(site, run["id"], "succeeded")
    assert log_of(site, run["id"]).strip() == "second"


def test_a_run_has_the_code_that_was_sent_with_it_and_one_restart_later_still(site: Site, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "train.py").write_text("print('trained')\n")
    (tmp_path / "start.sh").write_text("python package/train.py\n")
    (tmp_path / "start.sh").chmod(0o755)
    (tmp_path / ".polyaxonignore").write_text("data\n")
    (tmp_path / "data").write_text("left at home")
    run = start(site, "bash ./start.sh; ls", code=sent(site, tmp_path))
    until(site, run["id"], "succeeded")
    assert log_of(site, run["id"]).split() == ["trained", "package", "start.sh"]
    assert not list((site.home.path / "uploads").iterdir())  # it is in the run's folder now
    again = site.post(f"/api/v1/runs/{run['id']}/restart", {}, 201)
    until(site, again["id"], "succeeded")
    assert log_of(site, again["id"]).split() == ["trained", "package", "start.sh"]


def test_without_code_a_run_begins_in_an_empty_folder(site: Site) -> None:
    run = start(site, "pwd; ls -A | wc -l")
    until(site, run["id"], "succeeded")
    assert log_of(site, run["id"]).split() == [str(site.folder(run["id"]) / "code"), "0"]


def test_a_snapshot_is_for_one_run_of_the_one_who_sent_it(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    other = site.context.tokens.create("somebody", "write")
    snapshot = sent(site, tmp_path)
    answer = site.ask("POST", SUBMIT, other, json={"files": [file_of("true")], "code": snapshot})
    assert answer.status_code == 404
    until(site, start(site, "cat file", code=snapshot)["id"], "succeeded")
    assert refusal(site, 404, files=[file_of("true")], code=snapshot)["error"]["hint"]
    assert refusal(site, 404, files=[file_of("true")], code="../../../etc")


def test_a_file_that_is_wrong_costs_no_snapshot(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    snapshot = sent(site, tmp_path)
    refusal(site, 422, files=[{"name": "a.yml", "text": "kind: nonsense"}], code=snapshot)
    until(site, start(site, "cat file", code=snapshot)["id"], "succeeded")


def test_all_faults_of_a_file_come_at_once_with_their_places(site: Site) -> None:
    wrong = "version: 1\nkind: experiment\nrun:\n  cmdd: x\nenvironment:\n  resources:\n    cpu: lots\n"
    answer = refusal(site, 422, files=[{"name": "bad.yml", "text": wrong}])
    assert len(answer["faults"]) >= 2
    assert {fault["file"] for fault in answer["faults"]} == {"bad.yml"}
    assert all(fault["line"] and fault["message"] for fault in answer["faults"])
    assert "bad.yml" in answer["error"]["message"]
    assert "Traceback" not in json.dumps(answer)


def test_a_param_that_the_file_does_not_know_is_a_fault(site: Site) -> None:
    text = "version: 1\nkind: experiment\ninputs:\n- {name: lr, type: float}\nrun:\n  cmd: echo {{ lr }}\n"
    assert refusal(site, 422, files=[{"name": "a.yml", "text": text}], params={"lr": "fast"})["faults"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "version: 1\nkind: group\nhptuning:\n  matrix:\n    lr: {uniform: '0:1'}\nrun:\n  cmd: x {{ lr }}\n",
            "no end",
        ),
        ("version: 1\nkind: experiment\nbuild: {image: x}\n", "nothing to run"),
        ("version: 1\nkind: experiment\nenvironment:\n  python: {requirements: [six]}\nrun: {cmd: x}\n", "install"),
        ("version: 1\nkind: experiment\nenvironment:\n  python: {venv: /nowhere}\nrun: {cmd: x}\n", "bin/python"),
    ],
)
def test_what_cannot_run_is_refused_with_a_reason(site: Site, text: str, said: str) -> None:
    answer = refusal(site, 400, files=[{"name": "a.yml", "text": text}])
    assert said in answer["error"]["message"]


def test_a_group_is_submitted_followed_and_removed_like_a_run(site: Site) -> None:
    text = "version: 1\nkind: group\nhptuning: {concurrency: 2, matrix: {x: {values: [1, 2]}}}\nrun: {cmd: 'true'}\n"
    group = site.post(SUBMIT, {"files": [{"name": "g.yml", "text": text}]}, 201)["id"]
    until(site, group, "succeeded")
    found = site.get("/api/v1/runs", q=f"group:{group}")
    assert [row["status"] for row in found["runs"]] == ["succeeded"] * 2
    assert site.ask("DELETE", f"/api/v1/runs/{group}").status_code == 200
    assert site.get("/api/v1/runs", q=f"group:{group}")["count"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(("on", "said"), [("slurm", "`sbatch` is not on the PATH"), ("kubernetes", "no kubeconfig")])
def test_what_could_never_start_from_the_servers_machine_is_refused(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: str, said: str
) -> None:
    (tmp_path / "file").write_text("x")
    before, snapshot = site.get("/api/v1/runs")["count"], sent(site, tmp_path)
    with monkeypatch.context() as here:
        here.setenv("PATH", str(tmp_path))
        here.setenv("KUBECONFIG", str(tmp_path / "none"))
        answer = refusal(site, 400, files=[file_of("true")], on=on, code=snapshot)
    assert said in answer["error"]["message"]
    assert site.get("/api/v1/runs")["count"] == before
    assert not list((site.home.path / "runs").glob(".*"))
    until(site, start(site, "cat file", code=snapshot)["id"], "succeeded")  # it is the sender's to use again


@pytest.mark.parametrize("priority", ["high", True, 0.5, 10**9, -(10**9)])
def test_every_wrong_priority_is_refused_with_the_same_words(site: Site, priority: Any) -> None:
    answer = refusal(site, 400, files=[file_of("true")], priority=priority)
    assert answer["error"]["message"] == "`priority` must be an integer from -1,000,000 to 1,000,000"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"files": []},
        {"files": "x"},
        {"files": [1]},
        {"files": [{"text": 5}]},
        {"files": [{"text": "x"}] * 21},
        {"params": [1]},
        {"params": {"": 1}},
        {"params": {"a\nb": 1}},
        {"priority": "high"},
        {"priority": True},
        {"priority": 10**9},
        {"timeout": "soon"},
        {"timeout": -5},
        {"timeout": [1]},
        {"tags": "a,b"},
        {"project": "*"},
        {"project": 5},
        {"code": 5},
        {"strict": "yes"},
        {"git": "x"},
        {"on": "the moon"},
        {"project": "\ud800"},
        {"project": "a\0b"},
        {"name": "\x1b[31m"},
        {"tags": ["\udc80"]},
        {"description": "a\0b"},
        {"params": {"\ud800": 1}},
        {"params": {"lr": "\ud800"}},
        {"git": {"commit": "\n"}},
    ],
)
def test_nonsense_is_refused(site: Site, body: Any) -> None:
    before = site.get("/api/v1/runs")["count"]
    content = {"files": [file_of("true")], **body} if body else {}
    answer = site.ask("POST", SUBMIT, content=json.dumps(content).encode())
    assert answer.status_code in (400, 404, 422), answer.text
    assert answer.json()["error"]["message"]
    assert site.get("/api/v1/runs")["count"] == before


def test_a_file_of_more_than_a_mebibyte_is_refused(site: Site) -> None:
    refusal(site, 400, files=[{"name": "a", "text": "x" * ((1 << 20) + 1)}])
    refusal(site, 413, files=[{"name": "a", "text": "ü" * (1 << 20)}])


def test_what_asks_for_too_much_is_noted_and_refused_when_strict(site: Site) -> None:
    more = "environment:\n  resources:\n    cpu: {requests: 100000}\n"
    answer = refusal(site, 400, files=[file_of("true", more)], strict=True)
    assert "100000 CPUs" in answer["error"]["message"]
    run = start(site, "true", more)
    assert any("100000 CPUs" in note["message"] for note in run["notes"])
    until(site, run["id"])


def test_who_may_only_look_may_not_submit(site: Site) -> None:
    reader = site.context.tokens.create("reader", "read")
    answer = site.ask("POST", SUBMIT, reader, json={"files": [file_of("true")]})
    assert answer.status_code == 403
    assert site.ask("POST", "/api/v1/snapshots", reader, content=b"").status_code == 403


def test_a_run_may_not_submit_runs(site: Site) -> None:
    run = start(site, "true")
    until(site, run["id"])
    answer = site.ask("POST", SUBMIT, site.run_token(run["id"]), json={"files": [file_of("true")]})
    assert answer.status_code == 403


def test_a_run_gets_the_servers_environment_without_its_secrets(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PHALANX_DATABASE": "postgresql://x",
        "PHALANX_TOKEN": "x",
        "PHALANX_SERVER": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "SOME_URL": "https://me:pass@example.org/",
        "HARMLESS": "yes",
    }.items():
        monkeypatch.setenv(name, value)
    run = start(site, "env | cut -d= -f1")
    until(site, run["id"], "succeeded")
    names = set(log_of(site, run["id"]).split())
    assert "HARMLESS" in names
    assert not names & {"PHALANX_DATABASE", "PHALANX_TOKEN", "PHALANX_SERVER", "AWS_SECRET_ACCESS_KEY", "SOME_URL"}


def test_secrets_are_left_out_and_hidden() -> None:
    assert environment_for_runs({"A": "1", "MY_TOKEN": "x", "B": "http://a:b@c", "PHALANX_SERVER": "u"}) == {"A": "1"}
    data = {"env_vars": [["API_KEY", "x"], ["LR", "1"]], "password": "p", "n": 1, "url": ["https://u:p@h/"]}
    hidden = {"env_vars": [["API_KEY", "***"], ["LR", "1"]], "password": "***", "n": 1, "url": ["***"]}
    assert without_secrets(data) == hidden


def test_what_git_says_of_the_code_is_kept(site: Site) -> None:
    git = {"commit": "c0ffee", "branch": "main", "dirty": True, "diff": "--- a\n+++ b\n"}
    run = start(site, "true", git=git)
    until(site, run["id"])
    assert site.get(f"/api/v1/runs/{run['id']}")["commit"] == "c0ffee"
    assert site.get(f"/api/v1/runs/{run['id']}/records")["git"] == git
    assert site.ask("GET", f"/api/v1/runs/{run['id']}/code-diff").text == git["diff"]
    again = site.post(f"/api/v1/runs/{run['id']}/restart", {}, 201)
    until(site, again["id"])
    assert again["commit"] == "c0ffee"
    assert site.get(f"/api/v1/runs/{again['id']}/records")["git"] == git


def test_build_steps_that_are_not_run_are_noted(site: Site) -> None:
    run = start(site, "true", "build: {image: python, build_steps: ['pip install x']}\n")
    assert "the build steps are not run" in [note["message"] for note in run["notes"]]
    until(site, run["id"])


def test_a_run_waits_for_runs_that_its_sender_may_see(site: Site, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    first = start(site, f"until [ -e {gate} ]; do sleep 0.05; done", name="first")
    last = start(site, "echo last", after=["first"])
    until(site, first["id"], "running")
    row = site.get(f"/api/v1/runs/{last['id']}")
    assert (row["status"], row["waits_for"]) == ("created", f"waits for run {first['id']} (first) to succeed")
    assert site.get("/api/v1/runs", q="blocked:true")["count"] == 1
    other = site.context.tokens.create("foreign", "editor", projects=["theirs"])
    for named in ("first", first["id"], first["id"][:6]):
        body = {"files": [file_of("true")], "project": "theirs", "after": [named]}
        answer = site.ask("POST", SUBMIT, token=other, json=body)
        assert answer.status_code == 400, answer.text
        assert f"there is no run `{named}`" in answer.json()["error"]["message"]
    gate.touch()
    until(site, last["id"], "succeeded")
    wrong = refusal(site, 400, files=[file_of("true")], after=["first:failed", "none"])
    assert "so it will never fail; there is no run `none`" in wrong["error"]["message"]


# many runs in one request ---------------------------------------------------------------------------------------------

MANY = "/api/v1/runs/submit-many"
WITH_LR = "params:\n  lr: 0.5\n"


def folders(site: Site) -> list[str]:
    return sorted(path.name for path in site.home.runs.iterdir())


def test_many_runs_of_one_request_have_params_of_their_own_and_the_rest_in_common(site: Site, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("echo trained with $1\n")
    other = {"name": "other.yml", "text": "version: 1\nkind: experiment\nrun:\n  cmd: echo other\n"}
    runs = [{"params": {"lr": 0.25}}, {"params": {"lr": 1}, "name": "second", "times": 2}, {"files": [other]}]
    files = [file_of("bash train.sh {{ lr }}", WITH_LR)]
    body = {"files": files, "project": "mine", "tags": ["a"], "code": sent(site, tmp_path), "runs": runs}
    answer = site.post(MANY, body, 201)
    made = [row["id"] for row in answer["runs"]]
    assert (answer["count"], len(set(made))) == (4, 4)
    assert [row["name"] for row in answer["runs"]].count("second") == 2
    for run_id in made:
        done = until(site, run_id, "succeeded")
        assert (done["project"], done["tags"], done["user"]) == ("mine", ["a"], "tester")
    assert [log_of(site, run_id).strip() for run_id in made] == [
        "trained with 0.25",
        "trained with 1",
        "trained with 1",
        "other",
    ]
    assert not list((site.home.path / "uploads").iterdir())
    audit = [json.loads(line) for line in (site.home.path / "audit.log").read_text().splitlines()]
    (noted,) = [row for row in audit if row.get("run") == made[0]]
    assert (noted["run"], noted["count"]) == (made[0], "4")


def test_if_one_of_many_runs_is_refused_none_is_queued(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    code = sent(site, tmp_path)
    before = folders(site)
    files = [file_of("echo {{ lr }}", WITH_LR)]
    broken = {"name": "broken.yml", "text": "version: 1\nkind: experiment\nrunn:\n  cmd: x\n"}
    runs = [{"params": {"lr": 1}}, {"files": [broken]}, {"files": [broken]}]
    answer = site.ask("POST", MANY, json={"files": files, "code": code, "runs": runs})
    assert answer.status_code == 422, answer.text
    assert {fault["file"] for fault in answer.json()["faults"]} == {"broken.yml"}
    assert "(runs[2])" in answer.text
    much = "environment:\n  resources:\n    cpu: {requests: 100000}\n"
    runs = [{"params": {"lr": 1}}, {"files": [file_of("true", much)]}]
    answer = site.ask("POST", MANY, json={"files": files, "code": code, "runs": runs, "strict": True})
    assert answer.status_code == 400, answer.text
    assert "nothing was queued: runs[1]: " in answer.json()["error"]["message"]
    assert folders(site) == before
    again = site.post(MANY, {"files": [file_of("cat a")], "code": code, "runs": [{}]}, 201)  # the code is still there
    until(site, again["runs"][0]["id"], "succeeded")


@pytest.mark.parametrize(
    "runs", [[], [{"times": 0}], [{"times": 6000}, {"times": 6000}], [{"project": "other"}], [{}] * 10_001]
)
def test_a_request_for_many_runs_has_limits(site: Site, runs: list[dict[str, Any]]) -> None:
    before = folders(site)
    answer = site.ask("POST", MANY, json={"files": [file_of("true")], "runs": runs})
    assert answer.status_code == 400, answer.text
    assert folders(site) == before


def test_the_copies_of_code_for_many_runs_are_bounded(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "MOST_COPIED", 100)
    (tmp_path / "a").write_text("x" * 40)
    body = {"files": [file_of("true")], "code": sent(site, tmp_path)}
    before = folders(site)
    answer = site.ask("POST", MANY, json={**body, "runs": [{"times": 3}]})
    assert answer.status_code == 413, answer.text
    assert folders(site) == before
    site.post(MANY, {**body, "runs": [{"times": 2}]}, 201)


def test_who_may_only_look_may_not_submit_many_runs(site: Site) -> None:
    before = folders(site)
    reader = site.context.tokens.create("reader-of-many", "read")
    answer = site.ask("POST", MANY, reader, json={"files": [file_of("true")], "runs": [{}]})
    assert answer.status_code == 403
    assert folders(site) == before


def test_many_runs_wait_for_the_runs_that_their_sender_may_see(site: Site, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    first = start(site, f"until [ -e {gate} ]; do sleep 0.05; done")
    body = {"files": [file_of("true")], "runs": [{"times": 2}]}
    made = site.post(MANY, {**body, "after": [first["id"]]}, 201)["runs"]
    waiting = [site.get(f"/api/v1/runs/{row['id']}")["waits_for"] for row in made]
    assert waiting == [f"waits for run {first['id']} to succeed"] * 2
    gate.touch()
    for row in made:
        until(site, row["id"], "succeeded")
    answer = site.ask("POST", MANY, json={**body, "after": ["nosuchrun"]})
    assert answer.status_code == 400
    assert "there is no run `nosuchrun`" in answer.json()["error"]["message"]
