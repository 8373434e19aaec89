"""A number with its noun, as messages have it: "1 partition", "1,200 partitions". Pure."""


def counted(number: float, noun: str, plural: str | None = None) -> str:
    """Return a number without decimals, its digits in threes, with `noun` for one and `plural` (by default `noun` and
    an "s") for any other."""
    digits = f"{number:,.0f}"
    return f"{digits} {noun if digits == '1' else plural or f'{noun}s'}"
