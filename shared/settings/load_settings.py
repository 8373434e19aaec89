"""Read the settings once, and report each invalid one in a line that names its variable."""

import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from shared.errors import SettingsError
from shared.settings.listing import by_variable, describe
from shared.settings.redis import refused_value
from shared.settings.settings import PREFIX, Settings

_ALIKE: Final = 0.7
"""The least `SequenceMatcher.ratio` of a misspelled name and the one that is suggested."""
_NO_SETTINGS = ("CONFIG", "MODELS_DIR", "URL", "TOKEN")
# Kubernetes and Docker set variables such as REPLYLINE_GATEWAY_PORT=tcp://10.96.0.7:80 for a Service called
# replyline-gateway. Their values distinguish them from misspelled settings.
_SERVICE_LINK: Final = re.compile(
    r"""\w+_(
        SERVICE_HOST=[0-9a-f.:]+
        | SERVICE_PORT(_\w+)?=\d+
        | PORT(_\d+_(TCP|UDP|SCTP))?=(tcp|udp|sctp)://\S+
        | PORT_\d+_(TCP|UDP|SCTP)_(PORT=\d+|PROTO=(tcp|udp|sctp)|ADDR=[0-9a-f.:]+)
    )""",
    re.VERBOSE,
)


def load_settings(**overrides: Any) -> Settings:
    """Return the settings of this process.

    Raises:
        SettingsError: one line for each invalid setting, naming its variable.
    """
    named = os.environ.get(PREFIX + "CONFIG")
    if named and not Path(named).is_file():
        raise SettingsError(f"{PREFIX}CONFIG={named}: no such file; name a TOML file or unset it")
    unknown = _unknown_variables(os.environ)
    if unknown:
        raise SettingsError("\n".join(map(_no_setting, unknown)))
    try:
        return Settings(**overrides)
    except ValidationError as error:
        raise SettingsError("\n".join(_line(item) for item in error.errors())) from None
    except (ValueError, OSError) as error:
        if error.__cause__ is not None:  # invalid JSON in a tuple's variable
            raise SettingsError(f"settings cannot be read: {error}: {error.__cause__}") from None
        raise SettingsError(f"{named or 'replyline.toml'}: cannot be read as TOML: {error}") from None


def _line(item: Any) -> str:
    place = [part for part in item["loc"] if isinstance(part, str)]  # without the index in a list
    variable = PREFIX + "__".join(place).upper()
    if item["type"] == "extra_forbidden":
        return _no_setting(variable)
    said = item["msg"].removeprefix("Value error, ")
    message = by_variable(said, ".".join(place))
    if isinstance(item["input"], dict):  # several settings: the message names them
        return message if message != said else f"{variable}: {message}"
    value = refused_value(item["input"]) if isinstance(item["input"], str) else item["input"]
    given = "" if place[-1].endswith(("secret", "password")) else f"={value!r}"
    return f"{variable}{given}: {message}"


def _no_setting(variable: str) -> str:
    names = [name.removeprefix(PREFIX) for name, *_ in describe()]
    meant = "".join(f"{PREFIX}{name}? " for name in get_close_matches(variable.removeprefix(PREFIX), names, 1, _ALIKE))
    return f"{variable}: no such setting; {meant and 'do you mean '}{meant}`replyline settings` lists them"


def _unknown_variables(environ: Mapping[str, str]) -> list[str]:
    known = {variable for variable, *_ in describe()} | {PREFIX + name for name in _NO_SETTINGS}
    unknown = {name for name in environ if name.startswith(PREFIX)} - known
    return sorted(name for name in unknown if not _SERVICE_LINK.fullmatch(f"{name}={environ[name]}"))
