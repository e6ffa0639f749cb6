"""phalanx report: on a home and over a server, with the same words."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

pytest.importorskip("markdown_it", reason="needs the extra `reports`")

from phalanx.cli import phalanx
from phalanx.home.shared_documents import SharedDocuments
from phalanx.reports.records import Reports
from phalanx.spool import PointWriter
from phalanx.store import Store
from tests.cli.homes import Place, place_fixture  # noqa: F401 - found by its name
from tests.cli.running import Answer
from tests.server.site import Site

TEXT = """# Learning rates

Smaller is **better** <script>alert(1)</script> [run](/runs/rep1) [bad](javascript:alert) ![plot](http://evil.example/x.png)

```chart
metric: loss
query: tags:sweep
by: lr
smooth: 0.5
```

```chart
metric: loss, acc
runs: rep2, rep0
x: time
log_y: true
title: "<b>& runs"
```

```table
query: tags:sweep
sort: metric.loss
columns: name, status, params.lr, metric.loss, min.loss, took, nonsense
```
"""


class Caller:
    """The command line on a home, or on a server of that home."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.environment = {"PHALANX_SERVER": None, "PHALANX_HOME": None, **environment}

    def __call__(self, *arguments: str, text: str | None = None) -> Answer:
        result = CliRunner().invoke(phalanx, ["report", *arguments], env=self.environment, input=text)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)


@pytest.fixture(scope="module", name="site")
def site_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("reports")) as found:
        _fill(found.home.path)
        yield found


@pytest.fixture(name="report", params=["home", "server"])
def report_fixture(site: Site, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Caller]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        if request.param == "home":
            yield Caller(tmp_path, PHALANX_HOME=str(site.home.path))
        else:
            yield Caller(tmp_path, PHALANX_SERVER=site.url, PHALANX_TOKEN=site.token)
    for one in Reports(site.home.path).all():
        Reports(site.home.path).remove(one, one.tag)


def _fill(home: Path) -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    place = Place.__new__(Place)
    place.home = home
    for number in range(3):
        run_id, loss = f"rep{number}", (number + 1) / 10
        more: dict[str, Any] = {"params": {"lr": loss / 10}, "tags": ("sweep",), "summary": {"loss": loss, "acc": 0.5}}
        ends = {"started_at": begin, "finished_at": begin + timedelta(seconds=90)}
        place.remember(run_id, name=f"run <{number}>", project="vision", **more, **ends)
        for rank in range(2):
            attempt = home / "runs" / run_id / "replicas" / f"worker-{rank}" / "attempt-1"
            attempt.mkdir(parents=True)
            writer = PointWriter(attempt / "client-1.points")
            for step in range(40 - rank):
                value = float("nan") if step == 7 else loss + 1 / (step + 1)
                writer.add(step, begin.timestamp() + step, {"loss": value, "acc": step / 40})
            writer.close()
    with Store.open(home) as store:
        from phalanx.store.series.run_series import RunSeries

        for number in range(3):
            store.put_summaries(f"rep{number}", RunSeries(home / "runs" / f"rep{number}").summaries())


def test_a_report_is_written_read_changed_exported_and_deleted(report: Caller, site: Site) -> None:
    (report.folder / "r.md").write_text(TEXT)
    assert report("list").out == "No reports.\n"
    made = report("create", "r.md", "--project", "vision", "--json").data
    report_id = made["report"]["id"]
    assert (made["report"]["title"], made["faults"]) == ("Learning rates", [])
    assert report("show", report_id[:4]).out == TEXT.partition("\n\n")[2]  # the heading is the title
    listed = report("list", "--project", "vision")
    assert re.search(rf"{report_id} +vision +\d{{4}}-\d\d-\d\d .* Learning rates$", listed.out, re.MULTILINE)
    assert report("list", "--project", "other", "--json").data["reports"] == []
    changed = report("update", "Learning rates", "-", "--title", "New", "--json", text="```chart\nmetrc: x\n```")
    assert changed.data["report"]["created_at"] == made["report"]["created_at"]
    assert "Unknown key “metrc”" in changed.data["faults"][0]
    stale = report("update", report_id, "r.md", "--version", made["report"]["tag"])
    assert (stale.code, "changed this meanwhile" in stale.err) == (2, True)
    assert report("show", "New").out == "```chart\nmetrc: x\n```\n"
    assert report("rm", "New", "--yes").out == f"deleted New ({report_id})\n"
    assert SharedDocuments(site.home.path / "reports").names() == []


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        assert not [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_exported_file_has_charts_and_tables_and_runs_nothing(report: Caller) -> None:
    (report.folder / "r.md").write_text(TEXT)
    assert report("create", "r.md", "--project", "vision").code == 0
    assert report("export", "Learning rates").out == "wrote Learning-rates.html\n"
    text = (report.folder / "Learning-rates.html").read_text()
    page = _Page()
    page.feed(text)
    assert not {"script", "img", "iframe", "object", "link"} & set(page.tags)
    assert "default-src 'none'" in text
    assert all(link.startswith("http://127.0.0.1:") for link in page.links), page.links
    for said in ("<script>alert(1)</script>", "lr 0.01 (1)", "run <2> · loss", '"<b>& runs', "1.5 min", "0.125"):
        assert said in page.text, said
    rows = re.findall(r"<tr>(.*?)</tr>", text)
    assert [re.findall(r"run &lt;(\d)&gt;", row) for row in rows] == [[], ["0"], ["1"], ["2"]]
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) == 2
    for drawing, lines in zip(drawings, (3, 4), strict=True):
        parsed = ElementTree.fromstring(drawing)
        strokes = [one.get("stroke") for one in parsed.iter("{http://www.w3.org/2000/svg}path") if one.get("stroke")]
        assert len(set(strokes)) == lines
    again = report("export", "Learning rates")
    assert (again.code, "--force" in again.err) == (2, True)
    assert report("export", "Learning rates", "-o", "-").out == text


def test_wrong_calls_are_refused_in_a_sentence(report: Caller) -> None:
    for arguments, said in (
        (("show", "nothing"), "there is no report `nothing`: `phalanx report list` lists all"),
        (("create", "gone.md"), "cannot read gone.md"),
        (("create", "-"), "does not begin with a heading `# …`"),
        (("create", "-", "--title", "a\nb"), "line breaks"),
        (("create", "-", "--title", "x" * 201), "200"),
        (("create", "-", "--title", "x", "--project", "*"), "all projects"),
    ):
        answer = report(*arguments, text="plain text")
        assert (answer.code, said in answer.err) == (2, True), (arguments, answer.err)
    for _ in range(2):
        assert report("create", "-", "--title", "twice", text="x").code == 0
    assert "2 reports match `twice`" in report("show", "twice").err


@pytest.mark.slow
def test_an_export_finds_runs_that_no_one_has_looked_at_yet(place: Place) -> None:
    """As a plain script has tracked them: they are in the home, but not in its database."""
    code = "from phalanx import tracking\nwith tracking.start(name='fresh') as run:\n    run.log(loss=0.5, step=1)\n"
    done = subprocess.run([sys.executable, "-c", code], env=place.environment(), check=False, timeout=60)
    assert done.returncode == 0
    report = Caller(place.folder, PHALANX_HOME=str(place.home))
    assert report("create", "-", text="# All\n\n```table\n```\n").code == 0
    assert ">fresh<" in report("export", "All", "-o", "-").out
