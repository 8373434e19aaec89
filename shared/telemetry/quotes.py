"""Remove the quoted parts of an exception's message before it is logged: they may be a customer's text."""

import re
from typing import Final

# From the first quotation mark to the last: an exception may quote a customer's text (`could not convert string to
# float: 'my card is …'`, or a whole KeyError).
_QUOTED: Final = re.compile(r"""['"].*['"]""", re.DOTALL)


def without_quotes(text: str) -> str:
    """Return the text with an ellipsis in place of all that it quotes."""
    return _QUOTED.sub("'…'", text)
