"""The page on the real system: real Kafka, real Redis, the real model."""

import re

import pytest_asyncio
from playwright.async_api import expect
from system import MakeSystem, Service, model_dir

OpenChat = object  # tests/browser/conftest.py
MODEL_S = 60_000


@pytest_asyncio.fixture(scope="module")
async def page_of_the_system(make_system: MakeSystem) -> Service:
    system = await make_system(
        worker__engine="onnx",
        worker__max_length=1_024,
        model__dir=model_dir(),
        promise__first_token_ms=30_000,
        promise__deadline_ms=MODEL_S,
    )
    await system.worker().ready()
    return await system.gateway().ready()
