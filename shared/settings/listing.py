"""List the settings as people read them."""

from shared.settings.group import Group
from shared.settings.redis import without_password
from shared.settings.settings import PREFIX, Settings


def describe(settings: Settings | None = None) -> list[tuple[str, str, str]]:
    """(variable, value or default, what it means) of every setting."""
    rows: list[tuple[str, str, str]] = []
    for name, field in Settings.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, Group):
            group = getattr(settings, name) if settings else field.default
            rows.extend(
                (f"{PREFIX}{name}__{sub}".upper(), _show(getattr(group, sub)), part.description or "")
                for sub, part in annotation.model_fields.items()
            )
        else:
            value = getattr(settings, name) if settings else field.default
            rows.append((f"{PREFIX}{name}".upper(), _show(value), field.description or ""))
    return rows


def _show(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "" if value is None else without_password(str(value))
