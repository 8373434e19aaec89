"""Tokens to text, as it may be shown: never half a character, a thought, or the beginning of a stop string."""

import codecs
from collections.abc import Sequence

from workers.answer.thoughts import Thoughts


class Detokenizer:
    """Incremental. Byte-level BPE splits characters across tokens: bytes wait until their character is whole, and what
    is none becomes U+FFFD. Text that may yet become a stop string waits too; the stop string itself is never shown."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._stops = stops
        self._thoughts = Thoughts()
        self._held = ""
        self.stopped = False

    def feed(self, tokens: bytes) -> str:
        """Feed the bytes of tokens; return the text that they release. Nothing after a stop string was found
        (`stopped`)."""
        return self.release(self._thoughts.feed(self._decode(tokens)))

    def finish(self, *, whole: bool = True) -> str:
        """Return the text that was held back as a stop string's or a thought's beginning. A character that was cut in
        its middle is left out; if the answer is not `whole`, so is what may be a thought."""
        text = self.release(self._thoughts.finish(whole=whole)) + self._held
        self._held = ""
        return text

    def release(self, text: str) -> str:
        """Return what may be shown with more text: nothing after a stop string, nor its beginning."""
        if self.stopped or not self._stops:
            return "" if self.stopped else text
        text = self._held + text
        found = min((at for stop in self._stops if (at := text.find(stop)) >= 0), default=-1)
        if found >= 0:
            self.stopped, self._held = True, ""
            return text[:found]
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of `text` begin `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
