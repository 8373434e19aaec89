"""Settings of Redis: where it is and how to authenticate."""

import re
from typing import ClassVar, Final, NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import Field, field_validator, model_validator

from shared.hosts import check_host
from shared.settings.credential_files import AuthorityFile, PasswordFile, read_password
from shared.settings.group import SettingsGroup

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_PASSWORD_OPTION: Final = re.compile(r"(?<=password=)[^&#]*", re.IGNORECASE)
_SENTINEL_SCHEMES: Final = {"redis+sentinel": "redis", "rediss+sentinel": "rediss"}
_TLS_SCHEMES: Final = ("rediss", "rediss+sentinel")
_SENTINEL_PATH: Final = re.compile(r"/([^/]+)(?:/(\d*))?")
_SENTINEL_PORT: Final = 26_379
# The client sets time limits and the number of connections. At an unknown name redis-py fails in its first call.
_OPTIONS: Final = ("client_name", "db", "health_check_interval", "password", "protocol", "username")
_TLS_OPTIONS: Final = tuple(
    f"ssl_{name}"
    for name in ("ca_certs", "ca_path", "cert_reqs", "certfile", "check_hostname", "ciphers", "keyfile", "password")
)


class Sentinels(NamedTuple):
    """The Sentinel nodes to ask for a master's address.

    Attributes:
        hosts: host and port of each Sentinel.
        master: the master's name.
        server_url: a URL with the master's scheme, login, database and options, and a placeholder for its address.
    """

    hosts: tuple[tuple[str, int], ...]
    master: str
    server_url: str


class RedisAddress(SettingsGroup):
    """The address of a Redis server or cluster, and its credentials."""

    group: ClassVar[str]

    url: str = Field(
        "",
        repr=False,
        description=(
            "redis://, rediss:// (TLS) or unix:// URL, with user@ if needed; for Sentinel "
            "redis+sentinel://[user@]host:26379,host2:26379/master-name/0, or rediss+sentinel:// (TLS)"
        ),
    )
    cluster: bool = Field(
        False, description="true: the URL names one node of a Redis Cluster; redirections are followed"
    )
    password_file: PasswordFile | None = Field(
        None, description="file with the password; a trailing line end is ignored"
    )
    tls_ca: AuthorityFile | None = Field(
        None, description="PEM file of the authorities that sign certificates for rediss:// (empty: the system's)"
    )

    @field_validator("url")
    @classmethod
    def _can_be_taken_apart(cls, url: str) -> str:
        """Reject a URL that cannot be parsed, without the parser's own message, which could contain part of a
        password."""
        try:
            parts = urlsplit(url)
            hosts = parts.netloc.rpartition("@")[2].split(",") if parts.scheme in _SENTINEL_SCHEMES else [parts.netloc]
            places = [urlsplit(f"//{host}") for host in hosts]
            whole = all(place.port != 0 for place in places)
        except ValueError:
            whole = False
        if not whole or "@" in parts.path + parts.query + parts.fragment:
            raise ValueError(
                "the URL has no host:port; write /, ?, #, [, ] and @ of a password as %2F, %3F, %23, %5B, %5D and "
                f"%40, or put it into a file: {cls.group}.password_file"
            )
        if parts.scheme in _SENTINEL_SCHEMES and not (all(hosts) and _SENTINEL_PATH.fullmatch(parts.path)):
            raise ValueError(
                "the URL has no Sentinel hosts and master name; write "
                f"{parts.scheme}://host:26379,host2:26379/master-name/0"
            )
        for place in places:
            check_host(place.hostname)
        allowed: tuple[str, ...] = _OPTIONS if parts.scheme == "unix" else (*_OPTIONS, "socket_keepalive")
        allowed += _TLS_OPTIONS if parts.scheme in _TLS_SCHEMES else ()
        for name in parse_qs(parts.query, keep_blank_values=True):
            if name not in allowed:
                more = "" if parts.scheme in _TLS_SCHEMES else ", or with rediss:// one of ssl_…"
                raise ValueError(
                    f"the URL has the option {name}; remove it, or write one of {', '.join(allowed)}{more}"
                )
        return url

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        group, url = self.group, urlsplit(self.url)
        if self.tls_ca is not None and url.scheme not in _TLS_SCHEMES:
            raise ValueError(
                f"{group}.tls_ca={str(self.tls_ca)!r} has no effect: {group}.url does not begin with rediss:// or "
                "rediss+sentinel://"
            )
        if self.password_file is not None and not self.url:
            raise ValueError(f"{group}.password_file has no effect without {group}.url; set it too")
        if self.password_file is not None and (url.password is not None or "password" in parse_qs(url.query)):
            raise ValueError(f"{group}.url contains a password and {group}.password_file is set; remove one of them")
        if self.cluster and url.scheme in _SENTINEL_SCHEMES:
            raise ValueError(f"{group}.url names Sentinels, which a cluster does not use; unset {group}.cluster")
        if self.cluster and (not url.hostname or url.path.strip("/") not in {"", "0"}):
            raise ValueError(f"{group}.cluster needs a host and database 0 in {group}.url: redis://host:6379/0")
        return self

    @property
    def shown_url(self) -> str:
        return refused_value(self.url)

    @property
    def sentinels(self) -> Sentinels | None:
        """Return the Sentinels; None if the URL names the server itself."""
        parts = urlsplit(self.url)
        path = _SENTINEL_PATH.fullmatch(parts.path)
        if parts.scheme not in _SENTINEL_SCHEMES or path is None:
            return None
        login, at, places = parts.netloc.rpartition("@")
        hosts = [urlsplit(f"//{place}") for place in places.split(",")]
        server = parts._replace(
            scheme=_SENTINEL_SCHEMES[parts.scheme], netloc=f"{login}{at}sentinels", path=f"/{path[2] or 0}"
        )
        return Sentinels(
            hosts=tuple((host.hostname or "", host.port or _SENTINEL_PORT) for host in hosts),
            master=unquote(path[1]),
            server_url=server.geturl(),
        )

    def read_password(self) -> str | None:
        """Return the password in the file; None if no file is set.

        Raises:
            ValueError: the file cannot be read.
        """
        return None if self.password_file is None else read_password(self.password_file)


class RedisSettings(RedisAddress):
    """The Redis for history, erasures, hand-offs and quotas: everything stored about conversations except KV.

    It must not evict keys. Without it, answers still come, but without the conversation's history.
    """

    group = "redis"

    url: str = Field("redis://127.0.0.1:6379/0", repr=False, description=RedisAddress.model_fields["url"].description)
    timeout_ms: int = Field(
        50,
        ge=1,
        le=10_000,
        description="time limit of one call to Redis, in ms; the conversation itself may take up to a second",
    )
    history_ttl_s: int = Field(
        3_600,
        ge=1,
        description=(
            "seconds after which a conversation is deleted, counted from its last turn; open hand-offs are deleted "
            "this long after they were made"
        ),
    )


class KvRedisSettings(RedisAddress):
    """The Redis for conversations' KV, which evicts the least recently used keys.

    If no URL is set, KV goes to the Redis of `redis` with all its settings, which is good enough for a trial.
    """

    group = "kv_redis"


def refused_value(text: str) -> str:
    """Return an invalid setting's value without its password. The value may lack a URL's scheme."""
    return without_password(text) if _SCHEME.match(text) else without_password(f"://{text}").removeprefix("://")


def without_password(url: str) -> str:
    """Return a URL without its password; a text that is not a URL is returned unchanged."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    login, at, place = rest.rpartition("@")
    user, colon, password = login.partition(":")
    return _PASSWORD_OPTION.sub("***", f"{scheme}://{user}{colon}{'***' if password else ''}{at}{place}")
