"""The client of the official MCP SDK calls each tool of ``parc mcp`` over standard input."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.specs import SPEC, write_spec
from tests.project_files import ROOT

PYTHON = os.environ.get("PARC_CONFORMANCE_MCP", "")
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not PYTHON, reason="tests/conformance/run installs it"),
]

CLIENT = """
import asyncio, json, sys
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

async def main():
    root, calls = sys.argv[1], json.load(sys.stdin)
    words = ["-m", "parc", "mcp", "--root", root]
    server = StdioServerParameters(command=sys.executable, args=words, cwd=sys.argv[2])
    answers = []
    async with Client(stdio_client(server)) as client:
        tools = (await client.list_tools()).tools
        for name, arguments in calls:
            result = await client.call_tool(name, arguments)
            text = result.content[0].text
            answers.append([result.is_error, result.structured_content, text])
    listed = {tool.name: tool.model_dump(mode="json", by_alias=True) for tool in tools}
    json.dump([listed, answers], sys.stdout)

asyncio.run(main())
"""


def call_tools(root: Path, *calls: tuple[str, dict[str, Any]]) -> Any:
    """Return ({tool name: definition}, [(is error, result, text) per call])."""
    command = [PYTHON, "-c", CLIENT, str(root), str(ROOT)]
    ran = subprocess.run(
        command, input=json.dumps(calls), capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_the_client_of_the_sdk_calls_every_tool(tmp_path: Path) -> None:
    write_spec(tmp_path)
    changed = SPEC.replace("tp: 8", "tp: 4")
    listed, answers = call_tools(
        tmp_path,
        ("check", {"spec": "spec.yaml", "overrides": ["layout.tp=5"]}),
        ("estimate", {"spec": "spec.yaml"}),
        ("search", {"spec": "spec.yaml", "overrides": ["~layout"], "top": 3}),
        ("explain", {"topic": "PARC-D01"}),
        ("diff", {"old": "spec.yaml", "new": changed}),
    )
    assert [failed for failed, _, _ in answers] == [False] * 5
    check, estimate, search, explain, diff = (result for _, result, _ in answers)
    assert check["diagnostics"][0]["fix"] == "layout.tp: 4"
    assert estimate["estimate"]["layout"]["tp"] == 8
    assert [row["rank"] for row in search["candidates"]] == [1, 2, 3]
    assert "PARC-D01" in explain["text"]
    assert diff["changed"] is True
    assert set(listed) == {"check", "estimate", "search", "explain", "diff"}
    for tool in listed.values():
        assert tool["annotations"]["readOnlyHint"] is True
        assert tool["outputSchema"]["type"] == "object"
        assert all(one.get("description") for one in tool["inputSchema"]["properties"].values())


def test_wrong_arguments_are_errors_with_a_reason_and_the_server_goes_on(tmp_path: Path) -> None:
    write_spec(tmp_path)
    _, answers = call_tools(
        tmp_path,
        ("check", {"spec": "../spec.yaml"}),
        ("explain", {"topic": "nothing"}),
        ("search", {"spec": "spec.yaml", "top": 0}),
        ("check", {"spec": "spec.yaml"}),
    )
    reasons = ("the file is outside", "'nothing' is not a code", "greater than or equal to 1")
    for (failed, _, text), reason in zip(answers, reasons, strict=False):
        assert failed
        assert reason in text
    assert answers[-1][0] is False
    assert answers[-1][1]["ok"] is True
