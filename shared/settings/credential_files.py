"""The files that settings name for Kafka and Redis: passwords, authorities, certificates. They are looked at when the
settings are read, so that one that is no good stops the process with a line.
"""

import ssl
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator


def read_password(path: Path) -> str:
    """Return a password, token or other secret from a file, without its last line end. Raises `ValueError`."""
    try:
        password = path.read_bytes().rstrip(b"\r\n").decode()
    except OSError as error:
        raise ValueError(f"{error.strerror}; name a readable file that holds the secret") from None
    except UnicodeDecodeError:
        raise ValueError("not UTF-8; name a file that holds the secret and nothing else") from None
    if not password:
        raise ValueError("the file is empty; write the secret into it")
    return password


def _holds_a_password(path: Path) -> Path:
    read_password(path)
    return path


def _holds_authorities(path: Path) -> Path:
    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:  # ssl.SSLError is one
        cause = "no PEM certificate in it" if isinstance(error, ssl.SSLError) else error.strerror
        raise ValueError(f"{cause}; name the PEM file of the authority that signed the server's certificate") from None
    return path


PasswordFile = Annotated[Path, AfterValidator(_holds_a_password)]
"""A file that holds a password, in UTF-8, and nothing else."""

AuthorityFile = Annotated[Path, AfterValidator(_holds_authorities)]
"""A PEM file with the certificates of those who sign servers' ones."""


def tls_context(authorities: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """Return the TLS context of a client that checks the server's name and certificate (without `authorities`: by the
    system's), and shows its own where it has one. Raises `OSError`."""
    context = ssl.create_default_context(cafile=authorities)
    if certificate is not None:
        context.load_cert_chain(certificate, key, password="")  # else OpenSSL asks the terminal for an encrypted key's
    return context
