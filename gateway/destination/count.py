"""Count a question's tokens in a thread, so that a long text does not block the event loop. The number of tokens
decides which request topic (short, medium or long) the question is sent to."""

import asyncio
from dataclasses import dataclass

from shared.errors import ProtocolError
from shared.model.tokenizer import Tokenizer
from shared.nouns import counted
from shared.wire.messages import Bucket
from shared.wire.topics import bucket_of_length, surely_short


def check_length(max_input_tokens: int, num_tokens: int) -> None:
    """Raise `ProtocolError` if the input is too long."""
    if num_tokens > max_input_tokens:
        raise ProtocolError(
            "input_too_long",
            f"the input has {counted(num_tokens, 'token')}, {max_input_tokens:,} are allowed; shorten it",
            param="input",
        )


@dataclass(slots=True)
class TokenCount:
    """Counts the tokens of questions of at most `max_input_tokens`."""

    tokenizer: Tokenizer
    max_input_tokens: int

    async def bucket_of(self, text: str) -> Bucket:
        """Return a question's bucket. A text with few enough bytes is short without being counted. Raises
        `ProtocolError` if it is too long."""
        num_tokens = 0 if surely_short(text) else await asyncio.to_thread(self.tokenizer.count, text)
        check_length(self.max_input_tokens, num_tokens)
        return bucket_of_length(num_tokens)
