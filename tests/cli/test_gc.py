"""phalanx gc, in a home and over a server."""

from __future__ import annotations

from pathlib import Path

from tests.cli.homes import Place, place_fixture, wait_for  # noqa: F401 - found by its name
from tests.cli.test_remote import Laptop
from tests.server.site import Site
from tests.server.started import start, until

SAVE = "mkdir -p $PHALANX_OUTPUTS/c; for i in 1 2 3; do echo $i > $PHALANX_OUTPUTS/c/step-$i.pt; done"


def test_gc_shows_asks_and_removes(place: Place) -> None:
    run_id = place.ran(SAVE)
    assert place.quick("gc", "--dry-run").out == "Nothing to remove.\n"
    (place.home / "config.yml").write_text("retention: {age: 0.001}\n")
    shown = place.quick("gc", "--dry-run", "--json").data
    assert [(row["run"], row["count"], row["size"]) for row in shown["runs"]] == [(run_id, 3, 6)]
    assert (shown["freed"], place.quick("outputs", run_id).out.count(".pt")) == (0, 3)
    unsure = place.quick("gc", "--json")
    assert (unsure.code, "--yes" in unsure.out) == (2, True)
    assert place.quick("gc", "--yes").out.splitlines()[-1] == "removed 6 B"
    assert place.quick("outputs", run_id).out.count(".pt") == 0
    assert "removed 3 files" in place.quick("events", run_id).out
    assert place.quick("show", run_id, "--json").data["status"] == "succeeded"
    (place.home / "config.yml").write_text("retention: {age: soon}\n")
    wrong = place.quick("gc")
    assert (wrong.code, "config.yml:1" in wrong.err) == (1, True)


def test_checkpoints_are_removed_when_a_run_ends(place: Place) -> None:
    run_id = place.ran(SAVE, outputs={"keep": {"path": "c/step-{step}.pt", "last": 2}})
    folder = place.home / "runs" / run_id / "outputs" / "c"
    wait_for(lambda: sorted(path.name for path in folder.iterdir()) == ["step-2.pt", "step-3.pt"])


def test_gc_over_a_server_is_for_admins_and_in_the_audit_log(tmp_path: Path) -> None:
    with Site(tmp_path / "site") as site:
        run_id = start(site, SAVE)["id"]
        until(site, run_id)
        (site.home.path / "config.yml").write_text("retention: {age: 0.001}\n")
        editor = Laptop(tmp_path / "editor", site.url, site.token)
        refused = editor.quick("gc", "--dry-run")
        assert (refused.code, "not an admin" in refused.err) == (2, True)
        admin = Laptop(tmp_path / "admin", site.url, site.context.tokens.create("root", "admin"))
        assert admin.quick("gc", "--dry-run", "--json").data["runs"][0]["run"] == run_id
        assert admin.quick("gc", "--yes", "--json").data["freed"] == 6
        assert "removed 3 files" in admin.quick("events", run_id).out
        actions = [(row["action"], row["who"], row["target"]) for row in site.context.audit.last(20)]
        assert any(who == "root" and "retention" in action + target for action, who, target in actions), actions
