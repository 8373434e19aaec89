"""A base address that ends in a slash, or in another `/v1`, leads to the same paths."""

import pytest

from gateway.frontends.paths import plain_path


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/v1//chat/completions", "/v1/chat/completions"),
        ("//v1/chat/completions/", "/v1/chat/completions"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/models/", "/v1/models"),
        ("/v1//responses//resp_1/cancel/", "/v1/responses/resp_1/cancel"),
        ("/ai-sdk//chat/", "/ai-sdk/chat"),
        ("/ai-sdk/chat/", "/ai-sdk/chat"),
        ("/ai-sdk/chat/a//b/stream", "/ai-sdk/chat/a//b/stream"),
        ("/ai-sdk/chat/a/stream/", "/ai-sdk/chat/a/stream"),
        ("/ai-sdk/chat/a//", "/ai-sdk/chat/a"),
        ("/channels//chatwoot/", "/channels/chatwoot"),
        ("/edge/faq/", "/edge/faq"),
        ("//ws/", "/ws"),
        ("/", "/"),
        ("//", "/"),
        ("", "/"),
        ("/v1", "/v1"),
        ("/chatter", "/chatter"),
    ],
)
def test_path_prefixes_added_by_base_addresses_are_ignored(path: str, plain: str) -> None:
    assert plain_path(path) == plain
