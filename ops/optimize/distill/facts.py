"""Facts that are drawn for the texts of `topics.txt`: amounts, periods, places, SKUs and names. Pure."""

import random
import re
from collections.abc import Callable, Mapping
from typing import Final

_SLOT: Final = re.compile(r"\{(not )?([a-z]+)(\d?)\}")

_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "city": (
        "Aarhus", "Bergen", "Bristol", "Cork", "Delft", "Dresden", "Exeter", "Galway", "Ghent", "Graz", "Kiel", "Leeds",
        "Lille", "Linz", "Lund", "Malmö", "Nantes", "Oslo", "Porto", "Riga", "Tartu", "Turin", "Utrecht", "York",
    ),
    "road": (
        "Mill Lane", "Station Road", "Baker Street", "Quay Street", "North Parade", "Church Row", "Elm Avenue",
        "Market Square", "Canal Walk", "Foundry Road", "Garden Terrace", "Old Bridge Street", "Castle Hill",
    ),
    "weekday": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "month": ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October"),
    "carrier": ("Swiftpost", "Bluevan", "ParcelOne", "Northway", "Quickhand", "TransAlpen", "Gull Express", "Postly"),
    "payment": ("PayPal", "Visa", "Mastercard", "Apple Pay", "Klarna", "bank transfer", "direct debit"),
    "bank": ("Norden Bank", "Harrow & Sons", "First Meadow Bank", "Union Savings", "Credit Lyra"),
    "colour": ("sand", "moss green", "black", "navy", "copper", "ivory", "grey", "wine red", "mustard", "teal"),
    "material": ("oak", "cotton", "wool", "steel", "bamboo", "linen", "nuts", "soy", "leather", "glass", "milk"),
    "fuel": ("propane", "wood pellets", "ethanol", "biogas", "electricity", "white spirit", "hydrogen"),
    "battery": ("AA", "AAA", "CR2032", "18650", "9V", "LR44", "D"),
    "food": ("oat biscuit", "olive paste", "ginger syrup", "rye bread mix", "plum jam", "green tea", "chili sauce"),
    "noun": (
        "kettle", "tent", "desk", "stool", "backpack", "jacket", "speaker", "lamp", "grill", "scooter", "heater",
        "mixer", "camera", "clock", "blender", "helmet", "pillow", "toaster", "radio", "shelf", "drill", "fan", "mug",
    ),
    "maker": (
        "Ember", "Tarn", "Lyng", "Solvei", "Kestrel", "Brook", "Nimbus", "Alder", "Pico", "Vesta", "Marlin", "Hollow",
        "Arlo", "Juno", "Rowan", "Skerry", "Talus", "Wren",
    ),
    "page": (
        "My account", "Settings", "Profile", "Services", "Checkout", "Extras", "Contact", "Your orders", "Security",
        "Options", "Preferences", "Help desk", "Gift slip", "Keep me posted", "Add note", "Hold", "Split", "Notify me",
    ),
    "domain": ("tarnmarket", "lyngshop", "oakandiron", "brightbarn", "wrenstore", "fernhouse", "pinewell", "cobalt"),
    "mailbox": ("hello", "service", "care", "support", "orders", "office", "team", "desk"),
}  # fmt: skip

Draw = Callable[[random.Random], str]


def _number(*values: int, unit: str = "") -> Draw:
    def draw(chance: random.Random) -> str:
        value = chance.choice(values) if chance.random() < 0.6 else chance.randint(min(values), max(values))  # noqa: PLR2004
        return f"{value:,}{_plural(unit, value)}"

    return draw


def _plural(unit: str, value: int) -> str:
    if not unit:
        return ""
    return f" {unit if value == 1 or not unit.islower() or unit in {'cm', 'kg', 'km'} else unit + 's'}"


def _money(chance: random.Random) -> str:
    sign = chance.choice("€€€$£")
    whole = chance.choice((chance.randint(2, 30), chance.randint(5, 99), 5 * chance.randint(8, 400)))
    cents = chance.choice(("", "", ".90", ".50", ".95", f".{chance.randint(1, 99):02}"))
    return f"{sign}{whole:,}{cents if whole < 200 else ''}"  # noqa: PLR2004


def _sku(chance: random.Random) -> str:
    letters = "".join(chance.choices("ABCDEFGHJKLMNPRSTUVWX", k=chance.choice((1, 2, 2, 2, 3))))
    digits = "".join(chance.choices("0123456789", k=chance.choice((3, 4, 4, 4))))
    return f"{letters}-{digits}{chance.choice(('', f'-{chance.choice(_SUFFIXES)}', f'-{chance.choice(_SUFFIXES)}'))}"


_SUFFIXES: Final = "ABCDEFGHKLMNPRSTX"


def _days(chance: random.Random) -> str:
    value = chance.choice((2, 3, 4, 5, 7, 10, 14, 21, 28, 30, 45, 60, 90, chance.randint(2, 120)))
    return chance.choice((f"{value} days", f"{value} days", f"{value} working days" if value < 20 else f"{value} days"))  # noqa: PLR2004


def _clock(chance: random.Random) -> str:
    return f"{chance.randint(6, 22)}:{chance.choice(('00', '00', '30', '15', '45'))}"


def _range(chance: random.Random) -> str:
    low = chance.randint(1, 12)
    return f"{low}–{low + chance.randint(1, 7)}"


def _product(chance: random.Random) -> str:
    return f"{chance.choice(_WORDS['maker'])} {chance.choice(_WORDS['noun'])}"


_DRAWS: Final[Mapping[str, Draw]] = {
    "days": _days,
    "hours": _number(2, 3, 6, 12, 18, 24, 36, 48, 72, unit="hour"),
    "minutes": _number(5, 10, 15, 20, 30, 45, 60, 90, unit="minute"),
    "months": _number(2, 3, 6, 9, 12, 18, 24, 36, unit="month"),
    "years": _number(2, 3, 4, 5, 6, 8, 10, 12, 15, unit="year"),
    "count": _number(2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 40, 80, 150, 300),
    "version": lambda chance: f"{chance.randint(3, 6)}.{chance.randint(0, 4)}",
    "money": _money,
    "percent": _number(2, 3, 5, 8, 10, 12, 15, 20, 25, 30, 40, 60, 75, 90, unit="%"),
    "sku": _sku,
    "letters": lambda chance: f"{''.join(chance.choices('ABCDEFGHKLMNPRSTWX', k=2))}{chance.randint(2, 99)}",
    "street": lambda chance: f"{chance.randint(1, 180)} {chance.choice(_WORDS['road'])}",
    "clock": _clock,
    "range": _range,
    "date": lambda chance: f"{chance.randint(1, 28)} {chance.choice(_WORDS['month'])}",
    "weight": lambda chance: chance.choice(
        (
            f"{chance.randint(2, 90)} kg",
            f"{chance.randint(1, 9)}.{chance.randint(1, 9)} kg",
            f"{chance.randint(2, 9)}50 g",
        )
    ),
    "distance": _number(2, 5, 10, 20, 40, 80, 150, unit="km"),
    "cm": _number(4, 8, 12, 18, 25, 30, 48, 60, 90, 120),
    "litres": lambda chance: (
        f"{chance.choice((chance.randint(2, 60), f'{chance.randint(0, 5)}.{chance.randint(1, 9)}'))} litres"
    ),
    "watts": _number(3, 5, 8, 12, 25, 40, 60, 150, 800, 1200, 2000, unit="W"),
    "degrees": lambda chance: f"{chance.choice((4, 6, 7, 20, 30, 40, 60, 90))} °C",
    "product": _product,
    "button": lambda chance: f'"{chance.choice(_WORDS["page"])}"',
    "email": lambda chance: f"{chance.choice(_WORDS['mailbox'])}@{chance.choice(_WORDS['domain'])}.example",
    "url": lambda chance: f"{chance.choice(_WORDS['domain'])}.example/{chance.choice(_WORDS['noun'])}s",
    "phone": lambda chance: f"+{chance.randint(31, 49)} {chance.randint(20, 999)} {chance.randint(1000, 999999)}",
}


class Facts:
    """The facts of one entry: each slot keeps what was drawn for it first, and no two of a kind are the same."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._drawn: dict[str, str] = {}

    def fill(self, text: str) -> str:
        """`text` with `{slot}` in place of its facts, and `{not slot}` of others than these."""
        return _SLOT.sub(self._one, text)

    def _one(self, match: re.Match[str]) -> str:
        denied, kind, number = match.groups()
        name = kind + number
        if denied:
            return self._other(kind)
        if name not in self._drawn:
            self._drawn[name] = self._other(kind)
        return self._drawn[name]

    def _other(self, kind: str) -> str:
        draw = _DRAWS.get(kind) or (lambda chance: chance.choice(_WORDS[kind]))
        while (found := draw(self._chance)) in self._drawn.values():
            pass
        return found
