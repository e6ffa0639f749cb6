"""`phalanx mcp` as an assistant uses it: the official client starts the installed command and talks to it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
from mcp import Client, StdioServerParameters, stdio_client

from tests.cli.running import COMMAND

PATIENCE_S = 90.0


class ToolAnswer(NamedTuple):
    is_error: bool
    text: str
    data: Any


class Assistant:
    """An open session. The client itself compares every result with the tool's output schema."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def tools(self) -> dict[str, Any]:
        return {tool.name: tool for tool in (await self.client.list_tools()).tools}

    async def call(self, name: str, /, **arguments: Any) -> ToolAnswer:
        result: Any = await self.client.call_tool(name, arguments)
        return ToolAnswer(bool(result.is_error), result.content[0].text, result.structured_content)


def converse(
    talk: Callable[[Assistant], Coroutine[Any, Any, None]], *options: str, folder: Path, environment: dict[str, str]
) -> None:
    """Start `phalanx mcp` as the configuration of an assistant does, and talk to it."""
    started = StdioServerParameters(command=COMMAND, args=["mcp", *options], env=environment, cwd=str(folder))

    async def run() -> None:
        transport: AbstractAsyncContextManager[Any] = stdio_client(started)
        with anyio.fail_after(PATIENCE_S):
            async with Client(transport) as client:
                await talk(Assistant(client))

    anyio.run(run)
