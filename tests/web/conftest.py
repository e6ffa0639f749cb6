"""These tests drive the page in a real browser: `make test-web`, or PHALANX_TEST_WEB=1 with pytest.

Without that variable they are not collected: they need Debian's chromium, Playwright, and the page built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.web.browsing import Window
    from tests.web.serving import Served


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))  # Playwright's own event loop


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    from tests.web.browsing import open_browser

    with sync_playwright() as playwright:
        opened = open_browser(playwright)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One home and server for all tests of a file, each of which makes its own runs."""
    from tests.web.serving import Served

    found = Served(tmp_path_factory.mktemp("served"))
    yield found
    found.end()


@pytest.fixture
def open_window(browser: Browser, served: Served) -> Iterator[Any]:
    """Opens windows on the file's server; they are closed, and judged, when the test is over."""
    from tests.web.browsing import window

    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(window(browser, served, **options))


@pytest.fixture(name="window")
def window_fixture(open_window: Callable[..., Window]) -> Window:
    return open_window()
