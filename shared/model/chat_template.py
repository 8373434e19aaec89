"""Frame conversation turns as token ids of one vocabulary; message text is encoded as plain text."""

from collections.abc import Callable
from typing import Self

from shared.model.folder import TemplateMarks
from shared.model.tokenizer import Tokenizer, shown_text

Ids = tuple[int, ...]

_CONTINUATION_BYTES = range(0x80, 0xC0)


class ChatTemplate:
    """ChatML, `<|im_start|>role\\ntext<|im_end|>\\n`, or Llama 3's format if there is a token for the end of headers:
    `<|start_header_id|>role<|end_header_id|>\\n\\ntext<|eot_id|>`.

    Args:
        encode: encodes text without parsing special tokens.
        token_bytes: returns a token's raw bytes, empty for a special token; raises `IndexError` for an unknown id.
    """

    def __init__(
        self,
        *,
        start_id: int,
        end_id: int,
        header_end_id: int | None = None,
        prompt_start_id: int | None = None,
        encode: Callable[[str], list[int]],
        token_bytes: Callable[[int], bytes],
    ) -> None:
        self._start_id = start_id
        self._header_end_id = header_end_id
        self.encode = encode
        self._token_bytes = token_bytes
        self.start: Ids = () if prompt_start_id is None else (prompt_start_id,)
        """The beginning of a prompt, before its first message."""
        self.end = (end_id, *encode("\n")) if header_end_id is None else (end_id,)
        """The end of every message."""
        self.answer = self.begun("assistant", "")
        """The beginning of the message that the model writes."""

    @classmethod
    def for_tokenizer(cls, tokenizer: Tokenizer, marks: TemplateMarks) -> Self:
        """Return the template for one vocabulary.

        Raises:
            ModelError: the vocabulary lacks one of the marks.
        """
        return cls(
            start_id=tokenizer.special_id(marks.turn_start),
            end_id=tokenizer.special_id(marks.turn_end),
            header_end_id=None if marks.header_end is None else tokenizer.special_id(marks.header_end),
            prompt_start_id=None if marks.prompt_start is None else tokenizer.special_id(marks.prompt_start),
            encode=tokenizer.encode_text,
            token_bytes=tokenizer.token_bytes,
        )

    def begun(self, role: str, text: str) -> Ids:
        """Return a message without its end. Text added later is encoded separately."""
        if self._header_end_id is None:
            return (self._start_id, *self.encode(f"{role}\n{text}"))
        return (self._start_id, *self.encode(role), self._header_end_id, *self.encode(f"\n\n{text}"))

    def message(self, role: str, text: str) -> Ids:
        return (*self.begun(role, text), *self.end)

    def answered(self, text: str, output_ids: Ids) -> Ids:
        """Return the model's message from its own tokens as far as they spell `text`, then the rest of `text` encoded.

        Encoding `text` alone could give other tokens than the model decoded.
        """
        return (*self.answer, *self._spelling(text, output_ids), *self.end)

    def _spelling(self, text: str, output_ids: Ids) -> Ids:
        try:
            pieces = [self._token_bytes(token_id) for token_id in output_ids]
        except IndexError:  # of another vocabulary
            pieces = []
        if pieces and all(pieces) and shown_text(b"".join(pieces)) == text:
            return output_ids
        raw = text.encode()
        at = kept = said = 0
        for count, piece in enumerate(pieces, 1):
            if not piece or not raw.startswith(piece, at):
                break
            at += len(piece)
            if _begins_character(raw, at):
                kept, said = count, at
        return (*output_ids[:kept], *self.encode(raw[said:].decode()))


def _begins_character(raw: bytes, at: int) -> bool:
    """Return whether a UTF-8 character begins at `at`, or the text ends there."""
    return at == len(raw) or raw[at] not in _CONTINUATION_BYTES
