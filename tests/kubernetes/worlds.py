"""Where a contract is tried: a cluster of ours, or anybody's whose kubeconfig is given."""

from __future__ import annotations

import os
import secrets
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.cli.homes import wait_for
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.rest import Rest

IMAGE = os.environ.get("PHALANX_TEST_IMAGE", "python:3.12-slim")
GIVEN = os.environ.get("PHALANX_TEST_KUBECONFIG")
OLD, CURRENT = "1.20", "1.34"  # faces of our own cluster


class World:
    """A namespace that is made for one test, at a cluster that may be somebody else's."""

    def __init__(self, kubeconfig: Path, cluster: Cluster | None) -> None:
        self.kubeconfig = kubeconfig
        self.cluster = cluster  # None: somebody else's, which nobody breaks
        self.namespace = f"phalanx-test-{secrets.token_hex(4)}"

    @cached_property
    def api(self) -> Rest:
        return Rest.of(self.kubeconfig)

    def make(self) -> None:
        self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
        wait_for(self._has_account)  # no pod is taken before

    def _has_account(self) -> bool:
        account = self.api.find(self.path("serviceaccounts", "default"))
        has_tokens = self.cluster is None and self.version >= (1, 24)  # which are not kept in Secrets any more
        return account is not None and (has_tokens or bool(account.get("secrets")))

    def remove(self) -> None:
        """Its objects go with it; nobody waits."""
        self.api.delete(f"/api/v1/namespaces/{self.namespace}")
        self.api.close()

    def path(self, plural: str, name: str = "") -> str:
        group = {"jobs": "/apis/batch/v1"}.get(plural, "/api/v1")
        return f"{group}/namespaces/{self.namespace}/{plural}{f'/{name}' if name else ''}"

    def items(self, plural: str, **query: Any) -> list[dict[str, Any]]:
        return self.api.items(self.path(plural), **query)

    @cached_property
    def version(self) -> tuple[int, int]:
        found = self.api.get("/version")
        return int(found["major"]), int("".join(c for c in found["minor"] if c.isdigit()))
