"""Decode the JSON bodies of requests to the OpenAI-compatible paths. A parameter that would change the answer but is
not supported is refused by its name; every other unknown parameter is ignored (docs/doors.md lists both). Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType

from gateway.exchange.question import ClientQuestion, Role, conversation_of, role_of
from gateway.http.bodies import read_body
from shared.errors import ProtocolError
from shared.wire.fields import MaxOutputTokens, Metadata, Parts, Seed, Stop, Temperature, TopP, is_identifier

_TEXT_PARTS: Final = frozenset({"text", "input_text", "output_text"})
_NOTHING_SAID: Final[Mapping[str, str]] = {}


class _Part(Struct):
    type: str = "text"
    text: str | None = None
    refusal: str | None = None


_PARTS_IN_PLACE: Final = {"message": "user", "text": "user", "input_text": "user", "output_text": "assistant"}


class _Message(Struct):
    """A message. `id` alone, or with the type `item_reference`, names an earlier answer of this gateway. `text` without
    a role is a part that was sent in place of a whole message: the customer's, or an answer's."""

    role: str = ""
    content: str | list[_Part] | None = None
    text: str | None = None
    type: str = "message"
    id: str | None = None
    tool_calls: Any = None
    function_call: Any = None

    def __post_init__(self) -> None:
        if self.text and not (self.role or self.content) and self.kind in _PARTS_IN_PLACE:
            self.type, self.role, self.content = "message", _PARTS_IN_PLACE[self.kind], self.text

    @property
    def reference(self) -> str | None:
        named = self.kind == "item_reference" or not (self.role or self.content)
        return self.id if named else None

    @property
    def kind(self) -> str:
        return self.type.lower()


class _Options(Struct):
    """The parameters that both interfaces have. Values of type `Any` are refused unless they request nothing."""

    model: str | None = None
    stream: bool | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    metadata: Metadata | None = None
    top_logprobs: int | None = None
    tool_choice: Any = None


class _Named(Struct):
    id: str | None = None


class _StreamOptions(Struct):
    include_usage: bool | None = None


class ChatBody(_Options):
    messages: list[_Message] | UnsetType = UNSET
    max_tokens: MaxOutputTokens | None = None
    max_completion_tokens: MaxOutputTokens | None = None
    seed: Seed | None = None
    stop: str | Stop | None = None
    stream_options: _StreamOptions | None = None
    n: int | None = None
    logprobs: bool | None = None
    response_format: Any = None
    function_call: Any = None
    audio: Any = None
    modalities: Any = None


class ResponsesBody(_Options):
    input: str | list[_Message] | UnsetType = UNSET
    max_output_tokens: MaxOutputTokens | None = None
    conversation: str | _Named | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    background: bool | None = None
    instructions: Parts | None = None
    prompt: Any = None
    text: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAiQuestion(ClientQuestion):
    """A question of OpenAI's interfaces.

    Attributes:
        names: possible names of the conversation; the first non-empty one is used. `user`, `safety_identifier` and
            `prompt_cache_key` are not used, because other clients know or share them.
    """

    model: str
    stream: bool = False
    names: tuple[str | None, ...] = ()
    include_usage: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesQuestion(OpenAiQuestion):
    """A question of the Responses interface.

    Attributes:
        store: the response can be fetched and continued later
        references: ids of earlier answers in its input
    """

    previous_response_id: str | None = None
    conversation: str | None = None
    store: bool = True
    background: bool = False
    references: tuple[str, ...] = ()


def chat_question(data: bytes, header: str | None) -> OpenAiQuestion:
    """Return the question in a chat completion. `header` names its conversation. Raises `ProtocolError`."""
    body = read_body(data, ChatBody)
    _refuse_unless(body.n in (None, 0, 1), "n", "only one answer can be requested")
    _refuse_unless(not body.logprobs, "logprobs", "probabilities are not supported")
    _refuse_unless(
        not body.audio and all(_word(each) == "text" for each in _listed(body.modalities)),
        "modalities",
        "answers are text",
    )
    _refuse_unless(_plain(body.response_format), "response_format", "answers are plain text")
    _refuse_unless(_optional(body.function_call), "function_call", "functions are not supported")
    _refuse_options(body)
    if body.messages is UNSET:
        raise ProtocolError("invalid_field", "send messages, ending with the question", param="messages")
    dropped = list[str]()
    turns, text, system = conversation_of(_texts(body.messages, "messages", dropped), "messages")
    stop = tuple(filter(None, (body.stop,) if isinstance(body.stop, str) else body.stop or ()))
    if any(not 1 <= len(each) <= 64 for each in stop):  # noqa: PLR2004 - fixed by the protocol
        raise ProtocolError("invalid_field", "a stop string must have 1 to 64 characters", param="stop")
    return OpenAiQuestion(
        body=data,
        model=_model(body),
        input=text,
        stream=bool(body.stream),
        turns=turns,
        names=(header, (body.metadata or {}).get("session_id")),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        options={
            "max_output_tokens": body.max_completion_tokens or body.max_tokens,
            "temperature": body.temperature,
            "top_p": body.top_p,
            "seed": body.seed,
            "stop": stop,
        },
        system=system,
        metadata=body.metadata or {},
        ignored=_ignored(dropped),
    )


def _model(body: _Options) -> str:
    if not body.model:
        raise ProtocolError("invalid_field", "name a model; GET /v1/models lists them", param="model")
    return body.model


def _refuse_options(body: _Options) -> None:
    _refuse_unless(not body.top_logprobs, "top_logprobs", "probabilities are not supported")
    _refuse_unless(_optional(body.tool_choice), "tool_choice", "tools are not supported")


def _refuse_unless(fine: object, param: str, why: str) -> None:
    if not fine:
        raise ProtocolError("unsupported_parameter", f"{param}: {why}", param=param)


def _plain(form: Any) -> bool:
    kind = form.get("type") or "text" if isinstance(form, dict) else form
    return not kind or _word(kind) == "text"


def _optional(choice: Any) -> bool:
    """Return whether a choice of tools, given as a word or as an object with that type or mode, lets the model use no
    tool."""
    if isinstance(choice, dict):
        choice = choice.get("allowed_tools") or choice  # where chat completions have the mode
        choice = choice.get("mode", choice.get("type")) if isinstance(choice, dict) else choice
    return not choice or _word(choice) in ("none", "auto")


def _listed(said: Any) -> list[Any]:
    return said if isinstance(said, list) else [said] if said else []


def _word(said: Any) -> Any:
    return said.strip().lower() if isinstance(said, str) else said


def _texts(
    messages: Sequence[_Message], where: str, dropped: list[str], said: Mapping[str, str] = _NOTHING_SAID
) -> Iterable[tuple[Role, str]]:
    """Yield each message's role and text.

    Content of tools and content other than text is skipped, and its kind added to `dropped`: a picture earlier in the
    conversation costs no later question. Raises `ProtocolError` if the question itself has no text.

    Args:
        messages: the messages
        where: name of the field, for errors
        dropped: receives the kinds of skipped content
        said: texts of answers that the input only refers to, by their ids
    """
    wordless = ""  # where the last question is, if it has no text
    for place, message in enumerate(messages):
        at = f"{where}[{place}]"
        if message.kind == "reasoning":
            continue
        if message.reference is not None:
            yield "assistant", said.get(message.reference, "")
            continue
        if message.kind == "item_reference":
            raise ProtocolError("unsupported_item", "an item_reference names an answer by its id", param=f"{at}.id")
        if message.kind != "message":
            dropped.append(message.kind)
            continue
        role = role_of(message.role, at)
        if role == "program":
            dropped.append(message.role.lower())
            continue
        text = _text(message, dropped)
        if role == "user":
            wordless = f"{at}.content" if isinstance(message.content, list) and not text.strip() else ""
        if text or not (message.tool_calls or message.function_call):
            yield role, text
    if wordless:
        raise ProtocolError("unsupported_content", "only text is supported", param=wordless)


def _text(message: _Message, dropped: list[str]) -> str:
    """Return a message's text. An answer's refusals are included, its reasoning is not."""
    if not isinstance(message.content, list):
        return message.content or ""
    others = [part.type for part in message.content if part.type.lower() not in _TEXT_PARTS and part.refusal is None]
    text = "".join((part.text if part.type.lower() in _TEXT_PARTS else part.refusal) or "" for part in message.content)
    if message.role.lower() != "assistant":
        dropped += others
    return text


def _ignored(dropped: Iterable[str]) -> tuple[str, ...]:
    """Return each kind of skipped content once, in a form that is valid in a header."""
    return tuple(dict.fromkeys(kind if is_identifier(kind) else "content" for kind in dropped))


def responses_question(data: bytes, header: str | None, said: Mapping[str, str] = _NOTHING_SAID) -> ResponsesQuestion:
    """Return the question in a response request. `said` are the texts of answers that its input only refers to, by
    their ids. Raises `ProtocolError`."""
    body = read_body(data, ResponsesBody)
    _refuse_unless(not body.prompt, "prompt", "templates are not supported")
    form = body.text.get("format") if isinstance(body.text, dict) else body.text
    _refuse_unless(_plain(form), "text.format", "answers are plain text")
    _refuse_options(body)
    conversation = _conversation_of(body)
    if body.input is UNSET:
        raise ProtocolError("invalid_field", "send the question as input", param="input")
    messages = [_Message("user", body.input)] if isinstance(body.input, str) else body.input
    dropped = list[str]()
    turns, text, system = conversation_of(_texts(messages, "input", dropped, said), "input")
    references = tuple(each.reference for each in messages if each.reference is not None)
    names = (conversation, header, (body.metadata or {}).get("session_id"))
    if said is not _NOTHING_SAID and not said.keys() >= {*references}:
        dropped.append("item_reference")
    remembered = bool(body.previous_response_id or any(names))
    if remembered and turns and not references:
        raise ProtocolError(
            "history_given_twice", "the gateway stores this conversation; send only the new message", param="input"
        )
    return ResponsesQuestion(
        body=data,
        model=_model(body),
        input=text,
        stream=bool(body.stream),
        turns=None if remembered else turns,
        names=names,
        options={
            "max_output_tokens": body.max_output_tokens,
            "temperature": body.temperature,
            "top_p": body.top_p,
        },
        system="\n\n".join(each for each in ((body.instructions or "").strip(), system) if each),
        metadata=body.metadata or {},
        previous_response_id=body.previous_response_id or None,
        conversation=conversation or None,
        store=body.store is not False,
        background=bool(body.background),
        references=() if remembered else references,
        ignored=_ignored(dropped),
    )


def _conversation_of(body: ResponsesBody) -> str | None:
    """Return the conversation that a body names. Raises `ProtocolError`."""
    conversation = body.conversation.id if isinstance(body.conversation, _Named) else body.conversation
    if conversation and body.previous_response_id:
        raise ProtocolError(
            "invalid_field", "conversation and previous_response_id exclude each other", param="previous_response_id"
        )
    return conversation
