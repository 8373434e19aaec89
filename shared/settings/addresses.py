"""The addresses of other servers that settings name: pure."""

from urllib.parse import urlsplit


def check_http_url(url: str, *, example: str, key_file: str) -> None:
    """Raise `ValueError` for what is no address over HTTP, or holds a password."""
    try:
        parts = urlsplit(url)
        whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole or parts.query or parts.fragment:
        raise ValueError(f"write http:// or https://, a host and a path, as in {example}")
    if "@" in parts.netloc:
        raise ValueError(f"a key does not belong into an address; put it into the file of {key_file}")
