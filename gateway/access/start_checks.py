"""Check the requirements of a gateway before it starts."""

from shared.errors import SettingsError
from shared.process.lifetime import raise_file_limit
from shared.settings import PREFIX, Settings
from shared.telemetry.logs import get_logger

# In addition to the clients' sockets: those of Kafka and Redis, and files opened briefly.
_SPARE_FILES = 256


def check_who_may_ask(settings: Settings) -> None:
    """Raise `SettingsError` if authentication is not configured. A gateway starts only if its settings say who may
    ask."""
    if settings.auth.decided_mode is None:
        raise SettingsError(
            f"authentication is not configured: set {PREFIX}AUTH__SECRET_FILE or {PREFIX}AUTH__JWKS to check tokens, "
            f"or {PREFIX}AUTH__MODE=anonymous to accept any client as tenant {settings.tenant!r}"
        )


def check_files(max_connections: int) -> None:
    """Warn if the process may open fewer files than it may have clients. Clients above that number would not even get
    an error."""
    wanted = max_connections + _SPARE_FILES
    allowed = raise_file_limit(wanted)
    if allowed < wanted:
        action = f"ulimit -Hn {wanted}, or lower {PREFIX}GATEWAY__MAX_CONNECTIONS"
        get_logger().warning("few_files", allowed=allowed, wanted=wanted, action=action)
