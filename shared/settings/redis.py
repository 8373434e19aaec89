"""The settings that say where Redis is and how to get in."""

import re
from typing import ClassVar, Final, NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import Field, field_validator, model_validator

from shared.settings.credential_files import AuthorityFile, PasswordFile, read_password
from shared.settings.group import Group

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_PASSWORD_OPTION: Final = re.compile(r"(?<=password=)[^&#]*", re.IGNORECASE)
_SENTINEL_SCHEMES: Final = {"redis+sentinel": "redis", "rediss+sentinel": "rediss"}
_SENTINEL_PATH: Final = re.compile(r"/([^/]+)(?:/(\d*))?")
_SENTINEL_PORT: Final = 26_379


class Sentinels(NamedTuple):
    """The sentinels to ask for a master, and how to get in there: `server_url` has its scheme, login, database and
    options."""

    hosts: tuple[tuple[str, int], ...]
    master: str
    server_url: str


class RedisAddress(Group):
    """The address of a Redis, and how to get in."""

    group: ClassVar[str]

    url: str = Field(
        "",
        repr=False,
        description="redis://, rediss:// (TLS) or unix:// URL with user@ where needed; with Sentinel "
        "redis+sentinel://[user@]host:26379,host2:26379/master-name/0, or rediss+sentinel:// "
        "(TLS)",
    )
    cluster: bool = Field(
        False, description="true: the URL is of one node of a Redis Cluster, whose redirections are followed"
    )
    password_file: PasswordFile | None = Field(None, description="file with the password; a line end is not part of it")
    tls_ca: AuthorityFile | None = Field(
        None, description="PEM file of the authorities for rediss:// (empty: the system's)"
    )

    @field_validator("url")
    @classmethod
    def _can_be_taken_apart(cls, url: str) -> str:
        """Refuse a URL that cannot be taken apart; the libraries' own words would hold a part of a password."""
        try:
            parts = urlsplit(url)
            hosts = parts.netloc.rpartition("@")[2].split(",") if parts.scheme in _SENTINEL_SCHEMES else [parts.netloc]
            whole = all(urlsplit(f"//{host}").port != 0 for host in hosts)
        except ValueError:
            whole = False
        if not whole or "@" in parts.path + parts.query + parts.fragment:
            raise ValueError(
                "no host:port in it; write /, ?, #, [, ] and @ of a password as %2F, %3F, %23, %5B, %5D and %40, or "
                f"put it into a file: {cls.group}.password_file"
            )
        if parts.scheme in _SENTINEL_SCHEMES and not (all(hosts) and _SENTINEL_PATH.fullmatch(parts.path)):
            raise ValueError(
                "no sentinels and name of their master in it; write "
                f"{parts.scheme}://host:26379,host2:26379/master-name/0"
            )
        return url

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        group, url = self.group, urlsplit(self.url)
        if self.tls_ca is not None and url.scheme not in {"rediss", "rediss+sentinel"}:
            raise ValueError(
                f"tls_ca={str(self.tls_ca)!r} is of no use: {group}.url does not begin with rediss:// "
                "or rediss+sentinel://"
            )
        if self.password_file is not None and not self.url:
            raise ValueError(f"{group}.password_file is of no use: set {group}.url too")
        if self.password_file is not None and (url.password is not None or "password" in parse_qs(url.query)):
            raise ValueError(f"{group}.url holds a password and {group}.password_file is set; leave one out")
        if self.cluster and url.scheme in _SENTINEL_SCHEMES:
            raise ValueError(f"{group}.url names sentinels, and a cluster has none; unset {group}.cluster")
        if self.cluster and (not url.hostname or url.path.strip("/") not in {"", "0"}):
            raise ValueError(f"{group}.cluster needs a host and database 0 in {group}.url: redis://host:6379/0")
        return self

    @property
    def shown_url(self) -> str:
        return refused_value(self.url)

    @property
    def sentinels(self) -> Sentinels | None:
        """Return the sentinels; None where the URL is of the server itself."""
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
        """Return the password of the file; None where the URL has it, or nobody. Raises `ValueError` where the file is
        gone."""
        return None if self.password_file is None else read_password(self.password_file)


class RedisSettings(RedisAddress):
    """The Redis for all that is kept of conversations but their KV: history, what was erased, hand-offs, what clients
    have used up. It is to evict nothing. Without it answers come all the same, without what was said before."""

    group = "redis"

    url: str = Field("redis://127.0.0.1:6379/0", repr=False, description=RedisAddress.model_fields["url"].description)
    timeout_ms: int = Field(50, ge=1, le=10_000, description="longest that an answer waits for Redis, in ms")
    history_ttl_s: int = Field(
        3_600,
        ge=1,
        description="a conversation is forgotten so many seconds after its last turn, an open hand-off so "
        "many after it was made",
    )


class KvRedisSettings(RedisAddress):
    """The Redis that keeps conversations' KV, which evicts what was not used for longest. Without a URL it is the one
    of `redis`, with all that is set there: fit for trying it out."""

    group = "kv_redis"


def refused_value(text: str) -> str:
    """Return a setting as it may be shown where something is wrong with it: of a URL its very scheme may be missing."""
    return without_password(text) if _SCHEME.match(text) else without_password(f"://{text}").removeprefix("://")


def without_password(url: str) -> str:
    """Return the URL as it may be shown, whatever stands in it; a text that is no URL stays as it is."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    login, at, place = rest.rpartition("@")
    user, colon, password = login.partition(":")
    return _PASSWORD_OPTION.sub("***", f"{scheme}://{user}{colon}{'***' if password else ''}{at}{place}")
