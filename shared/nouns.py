"""Format a count with its noun for a message: "1 partition", "1,200 partitions". Pure."""


def counted(number: float, noun: str, plural: str | None = None) -> str:
    """Return the number with thousands separators, followed by `noun` for 1 and by `plural` for anything else.

    Args:
        number: the count; decimals are rounded.
        noun: the singular form.
        plural: the plural form; `noun` with an "s" by default.
    """
    digits = f"{number:,.0f}"
    return f"{digits} {noun if digits == '1' else plural or f'{noun}s'}"
