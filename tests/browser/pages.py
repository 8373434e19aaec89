"""What the browser's tests are given."""

from collections.abc import Awaitable, Callable

from playwright.async_api import Page

OpenChat = Callable[..., Awaitable[Page]]
"""Opens a page: the scripted gateway's own, unless told."""
