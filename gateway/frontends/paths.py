"""Correct a request's path: remove doubled and trailing slashes, and add or remove OpenAI's prefix `/v1`. Users
configure a base address with or without these, and client libraries append the rest. Pure."""

import re
from typing import Final

_SLASHES: Final = re.compile("/{2,}")
# A chat's id is in the rest of this path, with any slashes inside it.
_CHATS: Final = re.compile("/ai-sdk/chat/.")
_OPENAI: Final = re.compile("^/(?:v1/)*(?=(?:chat|responses|models|conversations)(?:/|$))")


def plain_path(path: str) -> str:
    """Return a path without doubled and trailing slashes, and OpenAI's paths with a single leading `/v1`: a base
    address may end in a slash or in `/v1`, or lack it."""
    if _CHATS.match(path):
        return path.rstrip("/")
    return _OPENAI.sub("/v1/", "/" + _SLASHES.sub("/", path).strip("/"), count=1)
