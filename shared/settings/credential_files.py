"""Files that settings name for Kafka and Redis: passwords, certificate authorities, certificates.

Each file is read when the settings are validated, so that a bad one stops the process with a one-line message.
"""

import ssl
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator


def read_password(path: Path) -> str:
    """Return the password, token or other secret in a file, without a byte order mark and a trailing line end.

    Raises:
        ValueError: the file cannot be read, is empty, or is not UTF-8.
    """
    try:
        password = path.read_bytes().rstrip(b"\r\n").decode("utf-8-sig")
    except OSError as error:
        raise ValueError(f"{error.strerror}; name a readable file that contains the secret") from None
    except UnicodeDecodeError:
        raise ValueError("not UTF-8; name a file that contains only the secret") from None
    if not password:
        raise ValueError("the file is empty; write the secret into it")
    return password


def _holds_a_password(path: Path) -> Path:
    read_password(path)
    return path


def _holds_authorities(path: Path) -> Path:
    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:  # ssl.SSLError is a subclass
        cause = "no PEM certificate in it" if isinstance(error, ssl.SSLError) else error.strerror
        raise ValueError(f"{cause}; name the PEM file of the authority that signed the server's certificate") from None
    return path


PasswordFile = Annotated[Path, AfterValidator(_holds_a_password)]
"""The path of a file that contains only a password, in UTF-8."""

AuthorityFile = Annotated[Path, AfterValidator(_holds_authorities)]
"""The path of a PEM file with the certificates of the authorities that sign servers' certificates."""


def tls_context(authorities: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """Return a TLS context for a client; it checks the server's name and certificate.

    Args:
        authorities: PEM file of trusted authorities; the system's if None.
        certificate: PEM file of the client's own certificate, if the server asks for one.
        key: PEM file of that certificate's key; None if the key is in `certificate`.

    Raises:
        OSError: a file cannot be read or is not a valid certificate or key.
    """
    context = ssl.create_default_context(cafile=authorities)
    if certificate is not None:
        # without a password OpenSSL would prompt on the terminal for an encrypted key
        context.load_cert_chain(certificate, key, password="")
    return context
