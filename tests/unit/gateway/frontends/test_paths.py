"""A base address that ends in a slash, or in another `/v1`, leads where it should."""

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
def test_a_path_is_read_without_what_base_addresses_add(path: str, plain: str) -> None:
    assert plain_path(path) == plain
