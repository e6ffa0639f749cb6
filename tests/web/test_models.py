"""Models on the page: what a run saved and nobody registered is offered."""

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
    expect(offered.get_by_role("button", name="Copy the command that registers it")).to_be_visible()

    page = window.go(f"/runs/{run_id}/outputs")
    expect(page.get_by_role("main")).to_contain_text('write outputs: {collect: ["history.csv","mnist.pt"]} in the file')

    assert served.call("models", "register", run_id, "mnist.pt", "--name", "mnist").code == 0
    page = window.go("/models")
    expect(page.get_by_role("link", name="mnist")).to_be_visible()
    expect(offered).to_have_count(0)
