"""Check the name of a host. Pure."""


def check_host(host: str | None) -> None:
    """Raise `ValueError`, with the remedy, for a host that no resolver accepts.

    Python's resolver raises `UnicodeError` for such a name, where its callers expect an `OSError`.
    """
    try:
        (host or "").encode("idna")
    except UnicodeError:
        raise ValueError(
            f"the host {host} has nothing or more than 63 characters between two dots; correct its name"
        ) from None
