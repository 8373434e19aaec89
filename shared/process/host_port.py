"""A host and a port as one text."""


def host_port(host: str, port: int) -> str:
    """Return the host and port as a URL has them: an IPv6 address stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
