"""The registry of models: whoever registers at once, and whoever is killed, it stays true."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.artifacts.downloads import DigestMismatch, download_version
from phalanx.artifacts.objects import Objects, TreeDigester
from phalanx.artifacts.remote import refuse_credentials
from phalanx.errors import CallError, StoreError
from phalanx.registry import journal
from phalanx.registry.names import check_alias, check_name, fitting_name, split_reference
from phalanx.registry.registry import MAX_LINEAGE, Registry
from phalanx.spool import JSON, MARK, frame, read
from phalanx.store import Store
from tests.artifacts.test_outputs import sha256
from tests.scheduler.leftovers import Left, left_fixture  # noqa: F401 - found by its name


@pytest.fixture
def registry(left: Left) -> Registry:
    left.run("r1", {"outputs/best.pt": b"weights", "models/net/17-1/w": b"weights", "models/net/17-1/c.json": b"{}"})
    return Registry(left.home, left.store)


def settle(registry: Registry) -> None:
    registry.finalize("r1", TreeDigester(Objects(registry.home.path)))


def everything(registry: Registry) -> Any:
    index = registry.index
    return index.models(), index.versions(), index.events()


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class TestRegistering:
    def test_versions_count_up(self, registry: Registry) -> None:
        numbers = [registry.register("net", "r1", "outputs/best.pt").number for _ in range(3)]
        assert numbers == [1, 2, 3]
        assert registry.register("other", "r1", "outputs/best.pt").number == 1
        assert registry.model("net").latest == 3

    def test_a_version_knows_where_it_came_from(self, left: Left) -> None:
        folder = left.run(
            "r1", {"outputs/a": b"x"}, params={"lr": 0.1}, summary={"loss": 0.5}, name="baseline", user="eve"
        )
        git = {"git": {"commit": "abc123", "dirty": True}}
        (folder / "records.json").write_text(json.dumps(git))
        left.store.put_fact("r1", "dataset cifar", {"name": "cifar", "digest": "d1"})
        version = Registry(left.home, left.store).register("net", "r1", "outputs/a", reason="looks good")
        assert version.run_id == "r1"
        assert version.metrics == {"loss": 0.5}
        lineage = version.lineage
        assert (lineage["commit"], lineage["dirty"], lineage["params"]) == ("abc123", True, {"lr": 0.1})
        assert lineage["datasets"] == [{"name": "cifar", "digest": "d1"}]
        assert (lineage["run"]["name"], lineage["run"]["user"]) == ("baseline", "eve")

    def test_metrics_that_are_given_are_taken(self, registry: Registry) -> None:
        assert registry.register("net", "r1", "outputs/best.pt", metrics={"acc": 0.9}).metrics == {"acc": 0.9}

    def test_the_whole_folder_is_kept(self, registry: Registry) -> None:
        registry.register("net", "r1", "models/net/17-1")
        found = registry.resolve("net")
        assert found.path is not None
        assert files_below(found.path) == {"w": b"weights", "c.json": b"{}"}
        assert (found.version.size, found.version.files) == (9, 2)

    def test_a_link_to_the_latest_checkpoint_is_followed_and_one_that_leads_out_is_not(
        self, registry: Registry, left: Left, tmp_path: Path
    ) -> None:
        outputs = left.folder("r1").path / "outputs"
        (outputs / "latest").symlink_to("best.pt")
        (outputs / "out").symlink_to("/etc/passwd")
        path = registry.resolve(registry.register("net", "r1", "outputs/latest").title).path
        assert path is not None
        assert files_below(path) == {"best.pt": b"weights"}
        with pytest.raises(CallError, match="has no `outputs/out`"):
            registry.register("net", "r1", "outputs/out")
        path = registry.resolve(registry.register("net", "r1", "outputs").title).path
        assert path is not None
        assert sorted(entry.name for entry in path.iterdir()) == ["best.pt", "latest"]

    @pytest.mark.parametrize("path", ["../r1", "/etc/passwd", "outputs/no", "run.json", "", "outputs/../run.json", "."])
    def test_other_paths_are_refused_and_leave_nothing(self, registry: Registry, path: str) -> None:
        with pytest.raises(CallError):
            registry.register("net", "r1", path)
        assert registry.index.models() == []
        assert not registry.folder.exists() or list(registry.folder.iterdir()) == []

    def test_a_folder_without_files_is_refused(self, registry: Registry, left: Left) -> None:
        (left.folder("r1").path / "outputs/none").mkdir()
        with pytest.raises(CallError, match="contains no files"):
            registry.register("net", "r1", "outputs/none")
        assert list(registry.folder.iterdir()) == []

    def test_an_unknown_run_is_refused(self, registry: Registry) -> None:
        with pytest.raises(CallError, match="there is no run"):
            registry.register("net", "nobody", "outputs/a")
        with pytest.raises(CallError, match="name the run"):
            registry.register("net", None, "outputs/a")

    def test_an_address_is_kept_as_it_is(self, registry: Registry) -> None:
        registry.register("net", None, "s3://bucket/model")
        found = registry.resolve("net")
        assert (found.path, found.url, found.version.files) == (None, "s3://bucket/model", None)
        assert registry.check() == []

    @pytest.mark.parametrize(
        "url", ["s3://key:hunter2@bucket/m", "s3://key:hun/ter2@bucket", "https://h/m?sig=hunter2"]
    )
    def test_an_address_with_a_key_in_it_is_refused_without_repeating_it(self, registry: Registry, url: str) -> None:
        with pytest.raises(CallError, match="credentials") as raised:
            registry.register("net", None, url)
        assert "hunter2" not in str(raised.value)
        assert "ter2" not in str(raised.value)
        assert registry.index.events() == []

    def test_lineage_that_is_too_large_is_left_out(self, left: Left) -> None:
        left.run("r1", {"outputs/a": b"x"}, params={"prompt": "x" * (MAX_LINEAGE + 1)})
        version = Registry(left.home, left.store).register("net", "r1", "outputs/a")
        assert version.lineage["params"] == {}
        assert "too large" in version.lineage["note"]

    def test_what_is_too_large_for_the_journal_is_refused(self, registry: Registry) -> None:
        with pytest.raises(CallError, match="too large"):
            registry.register("net", "r1", "outputs/best.pt", description="x" * (17 << 20))
        assert registry.register("net", "r1", "outputs/best.pt").number == 1


class TestFiles:
    def test_files_of_ours_are_linked_and_outputs_are_copied(self, registry: Registry, left: Left) -> None:
        folder = left.folder("r1").path
        linked, copied = (registry.register("net", "r1", path) for path in ("models/net/17-1", "outputs/best.pt"))
        assert (folder / "models/net/17-1/w").stat().st_nlink == 2
        left.settle("r1")
        inode = (folder / "models/net/17-1/w").stat().st_ino
        path = registry.resolve(linked.title).path
        assert path is not None
        assert (path / "w").stat().st_ino == inode
        path = registry.resolve(copied.title).path
        assert path is not None
        (folder / "outputs/best.pt").write_bytes(b"trained on")
        assert (path / "best.pt").read_bytes() == b"weights"
        assert (path / "best.pt").stat().st_ino == inode  # and equal content is kept once, whatever it came from

    def test_training_may_write_its_outputs_again(self, registry: Registry, left: Left) -> None:
        path = registry.resolve(registry.register("net", "r1", "outputs/best.pt").title).path
        assert path is not None
        (left.folder("r1").path / "outputs/best.pt").write_bytes(b"trained on")
        assert (path / "best.pt").read_bytes() == b"weights"

    def test_an_output_that_is_written_meanwhile_is_refused(
        self, registry: Registry, left: Left, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = shutil.copyfileobj

        def while_it_is_written(*arguments: Any) -> None:
            before(*arguments)
            (left.folder("r1").path / "outputs/best.pt").write_bytes(b"trained on")

        monkeypatch.setattr(shutil, "copyfileobj", while_it_is_written)
        with pytest.raises(CallError, match="changed while it was copied"):
            registry.register("net", "r1", "outputs/best.pt")
        assert registry.index.models() == []
        assert list(registry.folder.iterdir()) == []

    def test_two_readers_of_a_version_report_it_once(self, registry: Registry) -> None:
        version = registry.register("net", "r1", "outputs/best.pt")
        digests = [
            registry.finalize_version(version, TreeDigester(Objects(registry.home.path))).digest for _ in range(2)
        ]
        assert digests == [sha256(b"weights")] * 2
        assert len(registry.index.events()) == 2

    def test_where_links_do_not_work_files_are_copied(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refused(*_: object, **__: object) -> None:
            raise OSError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refused)
        path = registry.resolve(registry.register("net", "r1", "models/net/17-1").title).path
        assert path is not None
        assert files_below(path) == {"w": b"weights", "c.json": b"{}"}

    def test_a_version_outlives_its_run(self, registry: Registry, left: Left, tmp_path: Path) -> None:
        registry.register("net", "r1", "models/net/17-1")
        left.settle("r1")
        shutil.rmtree(left.folder("r1").path)
        left.store.delete("r1")
        Objects(left.home.path).garbage()
        found = registry.resolve("net")
        assert found.path is not None
        taken = download_version(found.path, registry.files(found.version), tmp_path / "got")
        assert files_below(tmp_path / "got") == {"w": b"weights", "c.json": b"{}"}
        assert taken.unchecked == 0
        assert found.version.lineage["run"]["id"] == "r1"

    def test_settling_gives_the_digest_once(self, registry: Registry) -> None:
        version = registry.register("net", "r1", "models/net/17-1")
        assert version.digest is None
        settle(registry)
        settle(registry)
        lines = f"{sha256(b'{}')}  c.json\n{sha256(b'weights')}  w\n"
        assert registry.find("net").digest == sha256(lines.encode())
        assert [event.kind for event in registry.index.events()] == ["register", "settle"]

    def test_one_file_has_its_own_digest(self, registry: Registry) -> None:
        registry.register("net", "r1", "outputs/best.pt")
        settle(registry)
        assert registry.find("net").digest == sha256(b"weights")

    def test_settling_a_run_settles_its_versions_with_what_is_known_then(self, registry: Registry, left: Left) -> None:
        registry.register("net", "r1", "outputs/best.pt")
        (left.folder("r1").path / "code").mkdir()
        (left.folder("r1").path / "code" / "train.py").write_bytes(b"import this")
        left.store.put_fact("r1", "dataset late", {"name": "late"})
        left.settle("r1")
        version = Registry(left.home, left.store).find("net")
        assert version.digest == sha256(b"weights")
        assert version.lineage["code"] == sha256(b"import this")
        assert version.lineage["datasets"] == [{"name": "late"}]

    def test_a_damaged_file_is_said_to_be(self, registry: Registry, tmp_path: Path) -> None:
        registry.register("net", "r1", "outputs/best.pt")
        settle(registry)
        found = registry.resolve("net")
        assert found.path is not None
        (found.path / "best.pt").chmod(0o600)
        (found.path / "best.pt").write_bytes(b"WEIGHTS")
        with pytest.raises(DigestMismatch, match=r"best\.pt is damaged"):
            download_version(found.path, registry.files(found.version), tmp_path / "got")

    def test_files_that_are_gone_are_never_gone_silently(self, registry: Registry) -> None:
        registry.register("net", "r1", "models/net/17-1")
        assert registry.check() == []
        (registry.folder / "net/1/files/w").unlink()
        with pytest.raises(CallError, match="files of net/1 are missing"):
            registry.resolve("net")
        assert len(registry.check()) == 1
        shutil.rmtree(registry.folder)
        assert len(registry.check()) == 1


EVENT = {"kind": "model", "at": 1_700_000_000.5, "name": "net", "path": "models/net/17-1", "metrics": {"acc": 0.9}}


class TestEvents:
    def test_an_event_is_registered_once_however_often_it_is_read(self, registry: Registry, left: Left) -> None:
        first = registry.ingest("r1", EVENT)
        assert first is not None
        assert (first.number, first.user, first.metrics) == (1, "ann", {"acc": 0.9})
        assert first.created_at.timestamp() == 1_700_000_000.5
        assert registry.ingest("r1", EVENT) is None
        assert Registry(left.home, left.store).ingest("r1", dict(EVENT)) is None
        assert registry.model("net").versions == 1

    def test_nor_again_when_its_version_was_deleted_or_the_index_made_anew(
        self, registry: Registry, left: Left
    ) -> None:
        registry.ingest("r1", EVENT)
        registry.delete("net", 1)
        left.store.clear()
        left.store.add(left.folder("r1").read())  # type: ignore[arg-type] # it can be read
        again = Registry(left.home, left.store)
        assert again.ingest("r1", EVENT) is None
        assert again.index.versions() == []

    def test_another_model_of_the_same_path_is_another_event(self, registry: Registry) -> None:
        registry.ingest("r1", EVENT)
        assert registry.ingest("r1", {**EVENT, "name": "other"}) is not None

    @pytest.mark.parametrize("path", ["../../r2/models/x", "/etc", "models/gone", "", None, 7, "run.json"])
    def test_an_event_whose_files_cannot_be_had_is_refused(self, registry: Registry, path: object) -> None:
        with pytest.raises(CallError):
            registry.ingest("r1", {**EVENT, "path": path})
        assert registry.index.events() == []

    @pytest.mark.parametrize("name", ["a/b:c@d", "", "\n", "x" * 1000, "..", "\udce9", "名前 / 🙂", None, 7, "-rf"])
    def test_any_name_is_made_to_fit(self, registry: Registry, name: object) -> None:
        version = registry.ingest("r1", {**EVENT, "name": name})
        assert version is not None
        assert registry.find(version.title) == version
        assert registry.ingest("r1", {**EVENT, "name": name}) is None

    def test_unknown_content_of_an_event_does_no_harm(self, registry: Registry) -> None:
        odd = {"metrics": [1], "labels": "x", "description": {"a": 1}, "at": float("inf")}
        version = registry.ingest("r1", {**EVENT, **odd})
        assert version is not None
        assert version.created_at.timestamp() > time.time() - 60
        odd = {"metrics": {"a": "x", "b": 1, "c": None}, "labels": {"k": 1}, "at": 1e300, "name": "other"}
        version = registry.ingest("r1", {**EVENT, **odd})
        assert version is not None
        assert (version.metrics, version.labels) == ({"b": 1.0}, {"k": "1"})
        assert len(Registry(registry.home, registry.store).index.events()) == 2


class TestChanging:
    @pytest.fixture(autouse=True)
    def versions(self, registry: Registry) -> None:
        for _ in range(2):
            registry.register("net", "r1", "outputs/best.pt")

    def test_a_promotion_is_history(self, registry: Registry) -> None:
        registry.alias("net", "champion", 1, "the first")
        registry.alias("net", "champion", 2, "better on the holdout", user="bob")
        assert registry.find("net@champion").number == 2
        event = registry.index.events("net")[-1]
        assert (event.kind, event.version, event.user, event.reason) == ("alias", 2, "bob", "better on the holdout")
        assert event.data == {"alias": "champion", "was": 1}

    def test_the_same_promotion_again_is_none(self, registry: Registry) -> None:
        registry.alias("net", "champion", 1)
        registry.alias("net", "champion", 1)
        assert len(registry.index.events("net")) == 3

    def test_an_alias_is_taken_away(self, registry: Registry) -> None:
        registry.alias("net", "champion", 1)
        registry.unalias("net", "champion", "overfitted")
        with pytest.raises(CallError, match="has no alias `champion`"):
            registry.find("net@champion")
        with pytest.raises(CallError, match="has no alias"):
            registry.unalias("net", "champion")

    def test_what_is_not_there_cannot_be_changed(self, registry: Registry) -> None:
        before = len(registry.index.events())
        for change in (
            lambda: registry.alias("net", "champion", 7),
            lambda: registry.alias("nobody", "champion", 1),
            lambda: registry.unalias("nobody", "champion"),
            lambda: registry.describe("nobody", "x"),
            lambda: registry.describe("net", "x", 7),
            lambda: registry.label("net", {"a": "b"}, 7),
            lambda: registry.delete("net", 7),
            lambda: registry.delete("nobody"),
        ):
            with pytest.raises(CallError, match=r"no model|no version"):
                change()
        assert len(registry.index.events()) == before

    def test_descriptions_and_labels(self, registry: Registry) -> None:
        registry.describe("net", "a net")
        registry.describe("net", "the first net", 1)
        registry.label("net", {"task": "vision"})
        registry.label("net", {"stage": "test", "tmp": "x"}, 1)
        registry.label("net", {"tmp": None}, 1)
        model, version = registry.model("net"), registry.version("net", 1)
        assert (model.description, model.labels) == ("a net", {"task": "vision"})
        assert (version.description, version.labels) == ("the first net", {"stage": "test"})

    def test_a_version_is_deleted_with_its_files(self, registry: Registry) -> None:
        registry.delete("net", 2, "wrong data")
        assert not (registry.folder / "net/2").exists()
        assert (registry.folder / "net/1").exists()
        assert registry.find("net").number == 1
        with pytest.raises(CallError, match="has no version 2; its latest is 1"):
            registry.find("net/2")
        assert registry.register("net", "r1", "outputs/best.pt").number == 3

    def test_what_an_alias_points_at_is_kept_unless_forced(self, registry: Registry) -> None:
        registry.alias("net", "champion", 2)
        for number in (2, None):
            with pytest.raises(CallError, match="`champion` points at"):
                registry.delete("net", number)
        registry.delete("net", 1)
        registry.delete("net", 2, force=True)
        assert registry.model("net").aliases == {}
        with pytest.raises(CallError, match="has no version"):
            registry.find("net")

    def test_a_model_is_deleted_and_can_be_made_again(self, registry: Registry) -> None:
        registry.delete("net", reason="a mistake")
        assert not (registry.folder / "net").exists()
        with pytest.raises(CallError, match="there is no model"):
            registry.find("net")
        assert registry.register("net", "r1", "outputs/best.pt").number == 3

    def test_a_model_without_versions(self, registry: Registry) -> None:
        model = registry.create("empty", "later", {"a": "b"})
        assert (model.description, model.labels, model.latest) == ("later", {"a": "b"}, None)
        with pytest.raises(CallError, match="already"):
            registry.create("empty")
        with pytest.raises(CallError, match="has no version"):
            registry.find("empty")

    def test_files_that_belong_to_no_version_are_tidied_away(self, registry: Registry) -> None:
        for name in ("net/9/files", "nobody/1/files", ".draft-old", ".draft-new"):
            (registry.folder / name).mkdir(parents=True)
        os.utime(registry.folder / ".draft-old", (1, 1))
        registry.tidy()
        found = sorted(str(path.relative_to(registry.folder)) for path in registry.folder.glob("*"))
        assert found == [".draft-new", "net"]
        assert sorted(path.name for path in (registry.folder / "net").iterdir()) == ["1", "2"]


class TestNames:
    @pytest.mark.parametrize("name", ["net", "ResNet-50 (v2)", "名前", "a.b_c+d", "x" * 100, "7", "modèle"])
    def test_good_ones(self, registry: Registry, name: str) -> None:
        version = registry.register(name, "r1", "outputs/best.pt")
        assert registry.find(f"{name}/1") == registry.find(name) == version

    @pytest.mark.parametrize(
        "name",
        ["", "a/b", "a:b", "a@b", "a\\b", "a\nb", "a\0b", ".", "..", ".hidden", "-rf", " a", "a ", "x" * 101, "🙂" * 60,
         "a\u202eb", "a\u200bb", "\udce9", "a\tb", "\x1b[31m"],
    )  # fmt: skip
    def test_bad_ones_are_refused_with_a_proposal(self, registry: Registry, name: str) -> None:
        with pytest.raises(CallError, match="try `") as raised:
            registry.register(name, "r1", "outputs/best.pt")
        proposal = str(raised.value).rpartition(": try `")[2].removesuffix("`")
        assert check_name(proposal) == proposal
        assert registry.index.events() == []

    @given(st.text(max_size=300))
    def test_a_fitting_name_fits(self, name: str) -> None:
        fitting = fitting_name(name)
        assert check_name(fitting) == fitting
        assert fitting_name(fitting) == fitting

    def test_the_same_letters_are_the_same_name(self) -> None:
        assert check_name("mode\u0300le") == check_name("mod\u00e8le")

    @pytest.mark.parametrize("alias", ["latest", "Latest", "1", "v2", "007", "a/b", "", "a\nb"])
    def test_bad_aliases(self, alias: str) -> None:
        with pytest.raises(CallError):
            check_alias(alias)

    def test_references(self) -> None:
        assert split_reference("net") == ("net", None)
        assert split_reference("net/3") == ("net", 3)
        assert split_reference("net@champion") == ("net", "champion")
        assert split_reference("net@latest") == ("net", None)

    @pytest.mark.parametrize(
        "reference", ["net/", "net/x", "net/-1", "/3", "@x", "a/b/c", "", "net/9999999999", "a@b/3"]
    )
    def test_bad_references(self, reference: str) -> None:
        with pytest.raises(CallError):
            split_reference(reference)

    @pytest.mark.parametrize("url", ["s3://bucket/a@b", "gs://b", "az://c/d", "abfs://c@account.dfs.core.windows.net/x",
                                     "file:///a/b", "s3://host:9000/b"])  # fmt: skip
    def test_addresses_without_keys(self, url: str) -> None:
        refuse_credentials(url)

    @pytest.mark.parametrize("url", ["s3://k:s@b", "s3://k@b", "s3://k:s", "abfs://c:k@account/x", "https://u:p@h:80/x",
                                     "gs://b/x?token=1", "s3://b#x", "s3://k:a/b:c@d"])  # fmt: skip
    def test_addresses_with_keys(self, url: str) -> None:
        with pytest.raises(CallError, match="credentials"):
            refuse_credentials(url)


class TestTheJournal:
    def test_the_index_is_made_again_from_it(self, registry: Registry, left: Left) -> None:
        registry.register("net", "r1", "outputs/best.pt", labels={"a": "b"})
        registry.register("net", "r1", "models/net/17-1")
        settle(registry)
        registry.alias("net", "champion", 2, "why")
        registry.delete("net", 1)
        before = everything(registry)
        registry.rebuild()
        assert everything(registry) == before
        left.store.clear()
        assert everything(Registry(left.home, left.store)) == before

    def test_an_index_that_is_behind_catches_up_when_it_is_opened(
        self, registry: Registry, left: Left, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        registry.register("net", "r1", "outputs/best.pt")

        def broken(*_: object) -> None:
            raise StoreError("the database is away")

        with monkeypatch.context() as patch:
            patch.setattr(type(registry.index), "add", broken)
            with pytest.raises(StoreError):
                registry.alias("net", "champion", 1)
        assert registry.index.aliases("net") == {}
        assert Registry(left.home, left.store).index.aliases("net") == {"champion": 1}

    def test_a_torn_record_is_passed_over(self, registry: Registry, left: Left) -> None:
        registry.register("net", "r1", "outputs/best.pt")
        torn = frame(JSON, json.dumps({"kind": "alias", "model": "net"}).encode())[:-5]
        for piece in (torn, b"\0\0\0", MARK):
            with (left.home.path / "models.journal").open("ab") as stream:
                stream.write(piece)
            again = Registry(left.home, left.store)
            before = len(again.index.events())
            assert again.register("net", "r1", "outputs/best.pt").number == before + 1
        before_it = everything(again)
        again.rebuild()
        assert everything(again) == before_it
        assert again.model("net").versions == 4

    def test_a_journal_that_was_put_back_wins(self, registry: Registry, left: Left) -> None:
        registry.register("net", "r1", "outputs/best.pt")
        saved = (left.home.path / "models.journal").read_bytes()
        registry.register("net", "r1", "outputs/best.pt")
        (left.home.path / "models.journal").write_bytes(saved)
        assert [version.number for version in Registry(left.home, left.store).index.versions()] == [1]
        (left.home.path / "models.journal").unlink()
        assert Registry(left.home, left.store).index.versions() == []

    def test_waiting_too_long_for_the_lock_is_an_error(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import fcntl

        monkeypatch.setattr(journal, "PATIENCE_S", 0.05)
        with (registry.home.path / "models.lock").open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            with pytest.raises(CallError, match=r"models\.lock"):
                registry.create("x")
        registry.create("x")


REGISTER = """
import sys
from pathlib import Path
from phalanx.home.home import Home
from phalanx.registry.registry import Registry
from phalanx.store import Store
home = Home(Path(sys.argv[1]))
with Store.open(home.path) as store:
    registry = Registry(home, store)
    print("ready", flush=True)
    for count in range(int(sys.argv[2])):
        made = registry.register("net", "r1", sys.argv[3], description=sys.argv[4])
        print(made.number, flush=True)
        registry.alias("net", "newest", made.number)
"""


def start(left: Left, count: int, name: str, path: str = "models/net/17-1") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", REGISTER, str(left.home.path), str(count), path, name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_processes_that_register_at_once_never_get_the_same_number(registry: Registry, left: Left) -> None:
    started = [start(left, 15, str(name)) for name in range(4)]
    given = [line for process in started for line in process.communicate()[0].split() if line != "ready"]
    assert [process.returncode for process in started] == [0] * 4
    assert sorted(map(int, given)) == list(range(1, 61))
    again = Registry(left.home, left.store)
    assert sorted(version.number for version in again.index.versions("net")) == list(range(1, 61))
    assert again.check() == []


@pytest.mark.slow
def test_killed_at_any_moment_journal_index_and_files_agree(registry: Registry, left: Left) -> None:
    chance = random.Random(17)
    registered: list[int] = []
    for round_number in range(12):
        process = start(left, 1000, str(round_number), chance.choice(["models/net/17-1", "outputs/best.pt"]))
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(chance.random() * 0.15)
        process.send_signal(signal.SIGKILL)
        registered += map(int, process.communicate()[0].split())
    with Store.open(left.home.path) as store:
        again = Registry(left.home, store)
        numbers = [version.number for version in again.index.versions("net")]
        assert sorted(numbers) == list(range(1, len(numbers) + 1))
        assert set(registered) <= set(numbers)  # whoever was told of a version finds it
        assert len(registered) == len(set(registered))
        assert again.check() == []
        aliases = again.index.aliases("net")
        assert aliases["newest"] in numbers
        before = everything(again)
        again.rebuild()
        assert everything(again) == before
        assert again.register("net", "r1", "outputs/best.pt").number == len(numbers) + 1
        assert len(read(left.home.path / "models.journal")) == len(again.index.events())
        again.tidy()
        kept = {path.name for path in (again.folder / "net").iterdir()}
        assert kept == {str(number) for number in range(1, len(numbers) + 2)}
