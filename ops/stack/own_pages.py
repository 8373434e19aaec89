"""The pages of our own processes: asked directly, whatever proxy the environment names for the rest of the world."""

import urllib.request
from typing import Any, Final

_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def open_page(url: str | urllib.request.Request, *, timeout_s: float) -> Any:
    """Return the answer, to be read and closed. Raises what `urllib.request.urlopen` raises: `OSError`,
    `HTTPException`."""
    return _DIRECT.open(url, timeout=timeout_s)
