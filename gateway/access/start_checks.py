"""Look at what a gateway needs before it starts."""

from shared.errors import SettingsError
from shared.process.lifetime import raise_file_limit
from shared.settings import PREFIX, Settings
from shared.telemetry.logs import get_logger

# Beside the clients' sockets: Kafka's and Redis', and what is open for a moment.
_SPARE_FILES = 256


def check_who_may_ask(settings: Settings) -> None:
    """Check that authentication is configured. Raises `SettingsError`: a gateway that was not told who may ask does not
    start."""
    if settings.auth.decided_mode is None:
        raise SettingsError(
            f"it is not said who may ask: set {PREFIX}AUTH__SECRET_FILE or {PREFIX}AUTH__JWKS to check tokens, or "
            f"{PREFIX}AUTH__MODE=anonymous to let anyone in as tenant {settings.tenant!r}"
        )


def check_files(max_connections: int) -> None:
    """Warn where a process may have fewer files than clients: those above are not even refused."""
    wanted = max_connections + _SPARE_FILES
    allowed = raise_file_limit(wanted)
    if allowed < wanted:
        action = f"ulimit -Hn {wanted}, or lower {PREFIX}GATEWAY__MAX_CONNECTIONS"
        get_logger().warning("few_files", allowed=allowed, wanted=wanted, action=action)
