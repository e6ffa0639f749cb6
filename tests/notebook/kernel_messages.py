"""Runs cells in a real kernel and prints what it sends to its front end, as JSON: `python kernel_messages.py CELLS`.

Called with the Python of Jupyter's environment.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from jupyter_client.manager import start_new_kernel  # type: ignore[import-not-found]

PATIENCE_S = 90


def main(cells: list[str]) -> None:
    manager, client = start_new_kernel(kernel_name="python3")
    messages: list[dict[str, Any]] = []

    def note(message: dict[str, Any]) -> None:
        messages.append({"type": message["msg_type"], **message["content"]})

    try:
        for cell in cells:
            client.execute_interactive(cell, output_hook=note, timeout=PATIENCE_S, allow_stdin=False)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    print(json.dumps(messages, default=str))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
