"""The address at which a replica's MLflow clients reach its agent: a port of the loopback, and a token.

Most commands never use it: what answers is imported and started by the first connection. Standard library only,
Python 3.8+.
"""

from __future__ import annotations

import os
import select
import socket

PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


class MlflowOffer:
    """An open port that nothing answers yet."""

    def __init__(self, folder: str, environment: dict[str, str]) -> None:
        """Adds the address to the environment of the command. Raises OSError if there is no loopback."""
        self.folder, self.environment = folder, environment
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.token = os.urandom(16).hex()
        self.is_taken = False
        environment["MLFLOW_TRACKING_URI"] = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        environment["MLFLOW_TRACKING_TOKEN"] = self.token
        environment["MLFLOW_RUN_ID"] = environment.get("PHALANX_RUN_ID", "")
        for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):  # clients prefer them to a token
            environment[name] = ""
        if any(name in environment for name in PROXIES):
            for name in ("no_proxy", "NO_PROXY"):
                environment[name] = ",".join(filter(None, (environment.get(name), "127.0.0.1")))

    def check(self) -> None:
        """Start to answer once there is a client. Called several times a second."""
        if not self.is_taken and select.select([self.listener], [], [], 0)[0]:
            from phalanx.agent.mlflow import endpoint
            from phalanx.agent.mlflow.records import RunRecords

            endpoint.start(self.listener, self.token, RunRecords(self.folder, self.environment))
            self.is_taken = True
