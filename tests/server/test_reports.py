"""Reports and pinned charts: who may read and change them, and that no change is lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from phalanx.home.shared_documents import MISSING, Outdated, SharedDocuments
from tests.server.site import Site

TEXT = "# Result\n\n```chart\nmetric: loss\n```\n<script>alert(1)</script>"


@pytest.fixture(name="made")
def made_fixture(site: Site) -> dict[str, Any]:
    answer = site.ask("POST", "/api/v1/reports", json={"project": "vision", "title": "Weekly", "text": TEXT})
    assert answer.status_code == 201
    return {**answer.json(), "tag": answer.headers["etag"]}


def path_of(made: dict[str, Any]) -> str:
    return f"/api/v1/reports/{made['id']}"


def test_a_report_is_created_read_changed_and_deleted(site: Site, made: dict[str, Any]) -> None:
    shown = site.ask("GET", path_of(made))
    assert shown.headers["etag"] == made["tag"]
    assert (shown.json()["title"], shown.json()["text"], shown.json()["project"]) == ("Weekly", TEXT, "vision")
    listed = site.get("/api/v1/reports", project="vision")
    assert "text" not in next(row for row in listed["reports"] if row["id"] == made["id"])
    changed = site.ask(
        "PUT", path_of(made), json={"title": "Monthly", "text": "new"}, headers={"If-Match": made["tag"]}
    )
    assert changed.status_code == 200
    assert changed.headers["etag"] != made["tag"]
    assert site.get(path_of(made))["created_at"] == made["created_at"]
    gone = site.ask("DELETE", path_of(made), headers={"If-Match": changed.headers["etag"]})
    assert gone.status_code == 200
    assert site.ask("GET", path_of(made)).status_code == 404


def test_no_one_overwrites_what_someone_else_changed(site: Site, made: dict[str, Any]) -> None:
    def change(title: str, tag: str | None) -> Any:
        headers = {} if tag is None else {"If-Match": tag}
        return site.ask("PUT", path_of(made), json={"title": title, "text": ""}, headers=headers)

    assert change("first", made["tag"]).status_code == 200
    late = change("second", made["tag"])
    assert late.status_code == 412
    assert "load it again" in late.json()["error"]["hint"]
    assert site.get(path_of(made))["title"] == "first"
    for missing in (None, "*"):
        assert change("third", missing).status_code == 428
    assert site.ask("DELETE", path_of(made), headers={"If-Match": made["tag"]}).status_code == 412
    assert change("third", late.headers["etag"]).status_code == 200


def test_a_report_is_seen_and_changed_by_those_of_its_project_alone(site: Site, made: dict[str, Any]) -> None:
    viewer, editor, other = (
        site.context.tokens.create(name, role, projects=[project])
        for name, project, role in (
            ("vera", "vision", "viewer"), ("edith", "vision", "editor"), ("otto", "speech", "editor"),
        )
    )  # fmt: skip
    body, match = {"title": "x", "text": ""}, {"If-Match": made["tag"]}
    assert site.ask("GET", path_of(made), viewer).status_code == 200
    assert site.ask("PUT", path_of(made), viewer, json=body, headers=match).status_code == 403
    assert site.ask("POST", "/api/v1/reports", other, json={"project": "vision", "title": "x"}).status_code == 403
    for method in ("GET", "PUT", "DELETE"):
        hidden = site.ask(method, path_of(made), other, json=body, headers=match)
        none = site.ask(method, "/api/v1/reports/0123456789", other, json=body, headers=match)
        assert (hidden.status_code, none.status_code) == (404, 404)
    assert made["id"] not in site.ask("GET", "/api/v1/reports", other).text
    assert site.ask("PUT", path_of(made), editor, json=body, headers=match).json()["updated_by"] == "edith"
    entries = site.context.audit.last(20)
    assert any(entry["who"] == "edith" and entry["target"] == path_of(made) for entry in entries)


@pytest.mark.parametrize(
    "body",
    [
        {"project": "vision"}, {"project": "vision", "title": " "}, {"project": "vision", "title": "x" * 201},
        {"title": "x"}, {"project": "vision", "title": 3}, {"project": "vision", "title": "x", "text": "x" * 200_001},
        {"project": "a\nb", "title": "x"},
    ],
)  # fmt: skip
def test_a_bad_report_is_refused(site: Site, body: dict[str, Any]) -> None:
    answer = site.ask("POST", "/api/v1/reports", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize("name", ["..%2F..%2Ftoken", "..", ".lock", "a" * 65, "%00", "A"])
def test_no_name_leads_out_of_the_folder(site: Site, name: str) -> None:
    answer = site.ask("GET", f"/api/v1/reports/{name}")
    assert answer.status_code in (404, 405)
    body = {"title": "x", "text": ""}
    assert site.ask("PUT", f"/api/v1/reports/{name}", json=body).status_code in (404, 405)


class TestLayout:
    def test_pinned_charts_belong_to_a_project(self, site: Site) -> None:
        path = "/api/v1/layout?project=pins"
        empty = site.ask("GET", path)
        assert empty.json() == {"project": "pins", "charts": []}
        chart = {"title": "both", "metrics": ["train/loss", "val/loss"], "x": "metric.epoch", "log_y": True}
        made = site.ask("PUT", path, json={"charts": [chart]}, headers={"If-Match": empty.headers["etag"]})
        assert made.status_code == 200
        again = site.ask("GET", path)
        assert again.json()["charts"] == [chart]
        assert again.headers["etag"] == made.headers["etag"]
        late = site.ask("PUT", path, json={"charts": []}, headers={"If-Match": empty.headers["etag"]})
        assert late.status_code == 412
        assert site.get("/api/v1/layout", project="../pins/\u202e")["charts"] == []

    def test_viewers_see_it_and_editors_change_it(self, site: Site) -> None:
        path, match = "/api/v1/layout?project=pinned2", {"If-Match": MISSING}
        viewer = site.context.tokens.create("victor", "viewer", projects=["pinned2"])
        other = site.context.tokens.create("olga", "editor", projects=["speech"])
        assert site.ask("GET", path, viewer).status_code == 200
        assert site.ask("GET", path, other).status_code == 403
        for who in (viewer, other):
            assert site.ask("PUT", path, who, json={"charts": []}, headers=match).status_code == 403

    @pytest.mark.parametrize(
        "charts",
        [
            None, {}, [1], [{}], [{"metrics": []}], [{"metrics": [""]}], [{"metrics": ["x"] * 21}],
            [{"metrics": ["x"], "title": 1}], [{"metrics": ["x"], "log_y": 1}], [{"metrics": ["x"]}] * 201,
        ],
    )  # fmt: skip
    def test_what_is_not_a_chart_is_refused(self, site: Site, charts: Any) -> None:
        headers = {"If-Match": MISSING}
        answer = site.ask("PUT", "/api/v1/layout?project=bad", json={"charts": charts}, headers=headers)
        assert answer.status_code == 400


class TestSharedDocuments:
    def test_of_changes_at_the_same_time_one_is_made(self, tmp_path: Path) -> None:
        def change(number: int) -> bool:
            try:
                SharedDocuments(tmp_path / "shared").write("one", {"number": number}, MISSING)
            except Outdated:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(change, range(16))) == 1

    def test_another_server_sees_a_change(self, tmp_path: Path) -> None:
        one, other = SharedDocuments(tmp_path), SharedDocuments(tmp_path)
        tag = one.write("a", {"x": 1}, MISSING).tag
        assert other.read("a") == ({"x": 1}, tag)
        other.write("a", {"x": 2}, tag)
        found = one.read("a")
        assert found is not None
        assert found.value == {"x": 2}
        one.remove("a", found.tag)
        assert (other.read("a"), other.names()) == (None, [])
