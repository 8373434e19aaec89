"""A bug that is planted: what is changed where, and which tests must notice."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bug:
    """`old`, which stands exactly once in `file`, becomes `new`; at least one of `tests` must then fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def planted_in(self, text: str) -> str:
        """The file's text with the bug. Raises `ValueError` where `old` does not stand there exactly once."""
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"{self.name}: {self.old!r} stands {count} times in {self.file}; correct the table")
        return text.replace(self.old, self.new)
