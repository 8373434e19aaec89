"""Every error that Replyline raises, in one tree.

    ReplylineError
    ├── ConnectFailed        the client cannot reach a gateway, or has lost it for good (retriable; shared/client)
    ├── Refused              the gateway refused the client's question (shared/client)
    ├── ProtocolError        a client or producer sent an invalid message; only its sender gets this error
    ├── SettingsError        a setting is out of range: the process stops with exit status 2
    ├── ModelError           the model's files are missing, damaged or unsupported: exit status 2
    │   └── VersionError     a version of the registry may not be loaded; its `reason` says why in a few words
    ├── ListenError          a port is in use, or an address is not one of this machine's: exit status 1
    ├── EngineError          the device failed in a step: its sequences fail, the worker restarts its engine
    ├── BrokerUnavailable    Kafka did not accept or return a record in time (retriable)
    │   └── BrokerRefuses    Kafka's ACLs deny the operation
    └── StoreUnavailable     Redis did not answer in time (retriable)

Callers branch on `retriable`, never on the class's name (as with aiokafka's errors). Expected outcomes (shed, expired,
cancelled) are values, not errors.
"""

from typing import Literal

ErrorKind = Literal[
    "invalid_request_error", "authentication_error", "rate_limit_error", "overloaded_error", "server_error"
]
VersionFault = Literal["not in this store", "corrupt", "truncated", "unsigned", "wrongly signed", "wrong base revision"]


class ReplylineError(Exception):
    """`code` is stable and machine-readable; the message names the value and the remedy in one line."""

    code = "internal"
    retriable = False


class ProtocolError(ReplylineError):
    """A message that the protocol does not allow. `code` is the `error.code` sent to the client, `event_id` the
    message's own if it could be read."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        kind: ErrorKind = "invalid_request_error",
        param: str | None = None,
        retriable: bool = False,
        retry_after_ms: int | None = None,
        event_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.kind = kind
        self.param = param
        self.retriable = retriable
        self.retry_after_ms = retry_after_ms
        self.event_id = event_id


class SettingsError(ReplylineError):
    code = "invalid_setting"


class ModelError(ReplylineError):
    code = "invalid_model"


class VersionError(ModelError):
    """A version that may not be loaded.

    `reason` is one of a few fixed values, for metrics and tests; the message names the version, the fault and the
    remedy.
    """

    code = "invalid_version"

    def __init__(self, reason: VersionFault, message: str) -> None:
        super().__init__(message)
        self.reason: VersionFault = reason


class ListenError(ReplylineError):
    code = "cannot_listen"


class EngineError(ReplylineError):
    code = "engine_failed"


class BrokerUnavailable(ReplylineError):  # noqa: N818 - named as the field names it
    code = "broker_unavailable"
    retriable = True


class BrokerRefuses(BrokerUnavailable):
    """The message names the missing permission and the command that lists the permissions needed."""


class StoreUnavailable(ReplylineError):  # noqa: N818 - named as the field names it
    code = "store_unavailable"
    retriable = True
