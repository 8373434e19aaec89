"""Read which tokens are revoked: a file with a line for each subject whose earlier tokens are refused.

A line is `TENANT/SUBJECT MOMENT`, as `replyline token --revoke` prints it. A token of that subject is refused if it was
issued at that moment or before, or does not say when; a token issued later is accepted. An unreadable file stops the
gateway's start; later it is logged, and the lines that were read last stay in force.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from gateway.access.identity import TokenGate
from shared.errors import SettingsError
from shared.settings import PREFIX
from shared.telemetry.logs import get_logger

_CHECK_INTERVAL_S: Final = 1.0

log = get_logger()


@dataclass(slots=True)
class RevocationFile:
    """Keeps the revocations of `gate` up to date. `path` is None if no file is set."""

    path: Path | None
    gate: TokenGate
    _text: str | None = field(default=None, init=False)
    _cause: str = field(default="", init=False)

    def __post_init__(self) -> None:
        """Read the file. Raises `SettingsError`."""
        if self.path is not None:
            self.read(self.path)

    def read(self, path: Path) -> None:
        """Replace the revocations by the file's. Raises `SettingsError`, and changes nothing then."""
        try:
            text = path.read_bytes().decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{PREFIX}AUTH__REVOKED={path}: {error}") from None
        if text != self._text:
            self.gate.revoked_until = _parsed(text, path)
            self._text = text
            log.info("tokens_revoked", subjects=len(self.gate.revoked_until))

    async def watch(self) -> None:
        """Read the file again every second, for ever."""
        while self.path is not None:
            await asyncio.sleep(_CHECK_INTERVAL_S)
            try:
                await asyncio.to_thread(self.read, self.path)
            except SettingsError as error:
                if str(error) != self._cause:
                    log.warning("revocations_unreadable", cause=str(error), action="the last ones read stay in force")
                self._cause = str(error)
            else:
                self._cause = ""


def revocation(tenant: str, subject: str, unix_ms: float) -> str:
    """Return the file's line that revokes the subject's tokens of that moment and before."""
    moment = datetime.fromtimestamp(unix_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    return f"{tenant}/{subject} {moment}"


def _parsed(text: str, path: Path) -> dict[tuple[str, str], float]:
    until: dict[tuple[str, str], float] = {}
    for number, line in enumerate(text.split("\n"), start=1):  # a subject may hold another line separator
        if not line.strip() or line.startswith("#"):
            continue
        who, _, moment = line.strip().rpartition(" ")
        tenant, _, subject = who.partition("/")
        try:
            unix_ms = datetime.fromisoformat(moment).timestamp() * 1_000
        except ValueError:
            subject = ""
        if not subject:
            raise SettingsError(
                f"{PREFIX}AUTH__REVOKED={path}, line {number}: not TENANT/SUBJECT MOMENT; make one with: "
                "replyline token --revoke"
            )
        until[tenant, subject] = max(unix_ms, until.get((tenant, subject), 0.0))
    return until
