"""Read pages of the system's processes directly, without the proxy that the environment may set for other hosts."""

import urllib.request
from typing import Any, Final

_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def open_page(url: str | urllib.request.Request, *, timeout_s: float) -> Any:
    """Return the response; read and close it. Raises the exceptions of `urllib.request.urlopen`: `OSError`,
    `HTTPException`."""
    return _DIRECT.open(url, timeout=timeout_s)
