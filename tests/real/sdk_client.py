"""Use `orch mcp` by the official Python SDK; run by the Python that the SDK is installed for, not by pytest.

    python sdk_client.py PROGRAM MODE      MODE: auto, legacy or a revision; the environment goes to the server

Prints what the SDK saw as one JSON object. The agent on the PATH is expected to answer "42" and, asked to
"hang", to do that.
"""
from __future__ import annotations

import asyncio
import json
import os
import sys

import anyio
from mcp.client.client import Client  # type: ignore[import-not-found]
from mcp.client.stdio import StdioServerParameters, stdio_client  # type: ignore[import-not-found]
from mcp.shared.exceptions import MCPError  # type: ignore[import-not-found]


async def use(program: str, mode: str) -> dict[str, object]:
    """Do what a client does."""
    seen: dict[str, object] = {}
    server = StdioServerParameters(command=program, args=["mcp"], env=dict(os.environ), cwd=os.getcwd())
    steps: list[float] = []

    async def progress(step: float, total: float | None, message: str | None) -> None:
        steps.append(step)

    async with Client(stdio_client(server), mode=mode) as client:
        seen["revision"] = client.protocol_version
        tools = (await client.list_tools()).tools
        seen["tools"] = [tool.name for tool in tools]
        answer = await client.call_tool("orch_run", {"prompt": "what?"}, progress_callback=progress)
        seen["run"] = [answer.is_error, answer.content[0].text, answer.structured_content["answer"]]
        seen["progress"] = steps
        seen["refused"] = (await client.call_tool("orch_run", {"prompt": ""})).is_error
        seen["status"] = sorted((await client.call_tool("orch_status", {})).structured_content)
        seen["usage"] = sorted((await client.call_tool("orch_usage", {"by": "day"})).structured_content)
        both = await asyncio.gather(*(client.call_tool("orch_run", {"prompt": "what?"}) for _ in range(2)))
        seen["both"] = [result.content[0].text for result in both]
        try:
            await client.call_tool("orch_frobnicate", {})
        except MCPError as err:
            seen["unknown"] = err.error.code
        seen["cancelled"] = await cancel(client)
        seen["after"] = (await client.call_tool("orch_run", {"prompt": "what?"})).content[0].text
    return seen


async def cancel(client: Client) -> bool:
    """Give up a call once its agent is at work."""
    with anyio.CancelScope() as scope:
        async def progress(_step: float, _total: float | None, message: str | None) -> None:
            if message and "has begun" in message:
                await asyncio.to_thread(wait_for_file, "begun")
                scope.cancel()
        await client.call_tool("orch_run", {"prompt": "hang"}, progress_callback=progress)
    return scope.cancelled_caught


def wait_for_file(name: str) -> None:
    """Wait until the agent has made a file."""
    import time
    while not os.path.exists(name):
        time.sleep(0.02)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(use(*sys.argv[1:]))))
