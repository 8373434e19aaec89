"""The wire's document says what the code does."""

import json
from pathlib import Path

from ops.operate.asyncapi import asyncapi, render
from shared.wire.messages import CLIENT_TYPES

COMMITTED = Path(__file__).parents[4] / "docs" / "asyncapi.json"


def test_the_committed_document_is_what_the_code_says() -> None:
    """Generate it with: replyline schema > docs/asyncapi.json"""
    assert COMMITTED.read_text() == render()


def test_every_client_message_is_in_it() -> None:
    names = {message["name"] for message in asyncapi()["components"]["messages"].values()}
    assert names >= CLIENT_TYPES


def test_every_reference_leads_somewhere() -> None:
    document = json.loads(render())

    def references(node: object) -> list[str]:
        if isinstance(node, dict):
            here = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
            return here + [found for value in node.values() for found in references(value)]
        return [found for value in node for found in references(value)] if isinstance(node, list) else []

    for reference in references(document):
        target = document
        for part in reference.removeprefix("#/").split("/"):
            target = target[part]
