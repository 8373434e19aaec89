"""Facts in a text that can be checked word for word: amounts, periods, dates, codes, links, addresses."""

from shared.facts.fact import Fact
from shared.facts.finding import facts_in
from shared.facts.known import Known

__all__ = ["Fact", "Known", "facts_in"]
