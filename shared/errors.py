"""Every error that Replyline raises, in one tree.

    ReplylineError
    ├── ConnectFailed        a gateway cannot be reached, or its client has lost it for good (retriable; shared/client)
    ├── Refused              a gateway refuses its client's question (shared/client)
    ├── ProtocolError        what a client or a producer sent is wrong: told to the sender, nothing else happens
    ├── SettingsError        a setting is out of range: the process stops with exit status 2
    ├── ModelError           the model's files are missing, damaged or unsupported: exit status 2
    │   └── VersionError     a version of the registry may not be loaded; its `reason` says why in a few words
    ├── ListenError          a port is taken, or an address is none of this machine's: exit status 1
    ├── EngineError          the device failed in a step: its sequences fail, the worker restarts its engine
    ├── BrokerUnavailable    Kafka did not take or give a record in time (retriable)
    │   └── BrokerRefuses    its ACLs do not let us
    └── StoreUnavailable     Redis did not answer in time (retriable)

Callers branch on `retriable`, never on the class's name (as aiokafka's errors do). Outcomes that are expected (shed,
expired, cancelled) are values, not errors.
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
    """A message that the protocol does not allow. `code` is the wire's `error.code`."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        kind: ErrorKind = "invalid_request_error",
        param: str | None = None,
        retriable: bool = False,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.kind = kind
        self.param = param
        self.retriable = retriable
        self.retry_after_ms = retry_after_ms


class SettingsError(ReplylineError):
    code = "invalid_setting"


class ModelError(ReplylineError):
    code = "invalid_model"


class VersionError(ModelError):
    """`reason` is one of a few, to be counted and tested by; the message names the version, the fault and the
    remedy."""

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
    """The message names the right that is missing and the command that shows which are needed."""


class StoreUnavailable(ReplylineError):  # noqa: N818 - named as the field names it
    code = "store_unavailable"
    retriable = True
