"""Where `make setup` gets packages from: as pip is configured, also with uv, which reads nothing of that."""

from __future__ import annotations

import pytest
from scripts.make_venv import Sources, configured_in, is_configured, sources_of

LISTING = """\
:env:.default-timeout='180'
global.cert='/etc/ca.pem'
global.extra-index-url='https://one/simple\\nhttps://two/simple'
global.index-url='https://mirror/simple'
global.trusted-host='mirror'
install.index-url='https://nearer/simple'
nonsense
"""


def test_a_file_of_pip_is_read() -> None:
    assert sources_of(configured_in(LISTING, {})) == Sources(
        index_url="https://nearer/simple",
        extra_indexes=("https://one/simple", "https://two/simple"),
        trusted_hosts=("mirror",),
        certificates="/etc/ca.pem",
    )


def test_variables_of_pip_win_over_its_file() -> None:
    environment = {"PIP_INDEX_URL": "https://here/simple", "PIP_FIND_LINKS": "/a /b", "PIP_CERT": "", "HOME": "/x"}
    found = sources_of(configured_in(LISTING, environment))
    assert (found.index_url, found.find_links) == ("https://here/simple", ("/a", "/b"))
    assert found.certificates == "/etc/ca.pem"


@pytest.mark.parametrize(("said", "meant"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_no_index_is_a_switch(said: str, meant: bool) -> None:
    assert sources_of(configured_in("", {"PIP_NO_INDEX": said})).no_index is meant


def test_uv_is_given_what_pip_would_use() -> None:
    options, variables = sources_of(configured_in(LISTING, {"PIP_FIND_LINKS": "/wheels"})).for_uv()
    assert options == [
        *("--index-url", "https://nearer/simple"),
        *("--extra-index-url", "https://one/simple", "--extra-index-url", "https://two/simple"),
        *("--index-strategy", "unsafe-best-match"),
        *("--find-links", "/wheels"),
    ]
    assert variables == {"UV_INSECURE_HOST": "mirror", "SSL_CERT_FILE": "/etc/ca.pem"}


def test_a_wheelhouse_is_all_there_is() -> None:
    sources = Sources("https://mirror/simple", ("https://one/simple",), ("/wheels",), no_index=True)
    assert sources.for_uv() == (["--no-index", "--find-links", "/wheels"], {})
    assert sources.for_pip() == {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"}


def test_pip_needs_no_more_than_its_own_settings() -> None:
    assert Sources("https://mirror/simple").for_pip() == {}


def test_uv_that_is_configured_itself_is_left_alone() -> None:
    assert is_configured({"UV_INDEX_URL": "https://x/simple"})
    assert is_configured({"UV_DEFAULT_INDEX": "https://x/simple"})
    assert not is_configured({"UV_CACHE_DIR": "/cache", "UV_INDEX_URL": ""})
