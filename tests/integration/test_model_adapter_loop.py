"""On the server a blocking call inside the event loop is an error; the adapter makes none, from the first call on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import asyncio
from blockbuster import blockbuster_ctx
from langchain_core.messages import HumanMessage
from graph.contract import Component
from nodes.ports import ModelCallFailed, ModelRequest
from service.models.factory import ModelSettings, SettingsModelFactory
from tests.stub_model_server import answer, error, stub_server

async def main():
    async with stub_server(answer("hello"), error(500)) as server:
        env = {"SUPERBIZ_MODEL": "openai:m", "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "k"}
        factory = SettingsModelFactory(ModelSettings.from_env(env), None)
        request = ModelRequest(Component.SYSTEM_CHAT, 1, [HumanMessage("x")])
        with blockbuster_ctx():
            client = factory.client(None)
            print((await client.complete(request)).text)
            try:
                await client.complete(request)
            except ModelCallFailed as failure:
                print(failure)

asyncio.run(main())
"""


def test_nothing_blocks_the_loop() -> None:
    pytest.importorskip("blockbuster", reason="blockbuster comes with the server extra")
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.stdout.split() == ["hello", "SERVER_ERROR"], ran.stderr[-2000:]
