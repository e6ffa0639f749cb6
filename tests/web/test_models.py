"""Models on the page: candidates, download, aliases and lineage."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.web.browsing import Window
from tests.web.serving import Served


def test_a_saved_model_is_a_candidate_until_it_is_registered(served: Served, window: Window) -> None:
    run_id = served.ran("echo weights > mnist.pt; echo 1 > history.csv", "--name", "saver")
    page = window.go("/models")
    offered = page.get_by_role("region", name="Candidates")
    expect(offered).to_contain_text("outputs/mnist.pt")
    offered.get_by_role("link", name="saver").click()
    expect(page).to_have_url(f"{served.url}/runs/{run_id}")
    page = window.go(f"/runs/{run_id}/models")
    expect(offered).to_contain_text("outputs/mnist.pt")
    expect(offered.get_by_role("button", name="Copy the register command")).to_be_visible()

    page = window.go(f"/runs/{run_id}/outputs")
    expect(page.get_by_role("main")).to_contain_text(
        'add outputs: {collect: ["history.csv","mnist.pt"]} to the polyaxonfile'
    )

    assert served.call("models", "register", run_id, "mnist.pt", "--name", "mnist").code == 0
    page = window.go("/models")
    expect(page.get_by_role("link", name="mnist")).to_be_visible()
    expect(offered).to_have_count(0)


def test_a_version_is_downloaded_promoted_and_traced(served: Served, window: Window) -> None:
    maker = served.ran("echo one > $PHALANX_OUTPUTS/w.pt", "--name", "maker")
    for _ in range(2):
        assert served.call("models", "register", maker, "outputs/w.pt", "--name", "traced").code == 0
    user = served.ran("true", "--name", "finetune", "-P", "init=traced/1", params={"init": "none"})

    page = window.go("/")
    page.get_by_role("navigation").get_by_role("link", name="Models").click()
    page.get_by_role("link", name="traced").click()
    with page.expect_download() as download:  # the third click
        page.locator("#version-2").get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == "w.pt"
    assert download.value.path().read_text() == "one\n"

    for number in (1, 2):
        page.locator(f"#version-{number}").get_by_role("button", name="Alias").first.click()
        dialog = page.get_by_role("dialog", name=f"Add an alias to version {number}")
        dialog.get_by_label("Alias").fill("champion")
        if number == 2:
            expect(dialog).to_contain_text("champion moves from version 1 to version 2")
        dialog.get_by_role("button", name="alias").click()
        expect(page.locator(f"#version-{number}")).to_contain_text("champion")
    expect(page.locator("#version-1")).not_to_contain_text("champion")
    lineage = page.get_by_role("region", name="Lineage")
    row = lineage.get_by_role("listitem").filter(has_text="v1")
    expect(row.get_by_role("link", name="maker")).to_have_attribute("href", f"/runs/{maker}")
    expect(row.get_by_role("link", name="finetune")).to_have_attribute("href", f"/runs/{user}")
    page.locator("#version-2").get_by_role("button", name="Remove alias champion").click()
    expect(page.locator("#version-2")).not_to_contain_text("champion")
    assert served.ask("/models/traced")[1]["aliases"] == {}
