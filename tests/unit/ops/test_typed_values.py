"""Every path, number and choice of every command is checked before the command starts anything."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

import pytest

from ops import cli
from ops.paths import label
from tests.support.command_tree import a_value, commands_under, kind_of, replyline

# Its help speaks of a folder, but a version's id is no path.
NO_PATHS: Final = {"shadow replay --version"}


ROOT: Final = replyline()


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a command, and the words that make the rest of the command line valid."""

    path: tuple[str, ...]
    own: Any
    options: tuple[str, ...]
    before: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((*self.path, self.label))

    @property
    def label(self) -> str:
        return label(self.own)

    def line(self, value: str) -> list[str]:
        """Return a command line that is valid but for this value."""
        if self.own.param_type_name == "option":
            return [*self.path, *self.options, self.label, value, *self.before]
        return [*self.path, *self.options, *self.before, value]


def parameters() -> Iterator[Parameter]:
    for path, command in commands_under(ROOT):
        needed = [each for each in command.params if each.required]
        for own in command.params:
            if own.name == "help" or getattr(own, "is_flag", False):
                continue
            options = [each for each in needed if each is not own and each.param_type_name == "option"]
            arguments = [each for each in command.params if each.param_type_name == "argument"]
            before = arguments[: arguments.index(own)] if own in arguments else [a for a in arguments if a.required]
            typed = [word for each in options for word in (each.opts[0], a_value(each))]
            yield Parameter(path, own, tuple(typed), tuple(map(a_value, before)))


def is_path(parameter: Parameter) -> bool:
    return kind_of(parameter.own) is Path or any(word in (parameter.own.metavar or "") for word in ("FILE", "DIR"))


PARAMETERS: Final = list(parameters())
PATHS: Final = [each for each in PARAMETERS if is_path(each)]
CHOICES: Final = [each for each in PARAMETERS if get_origin(kind_of(each.own)) is Literal]
NUMBERS: Final = [each for each in PARAMETERS if kind_of(each.own) in {int, float}]

Refused = Callable[[Parameter, str], str]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Refused:
    """`refused(parameter, value)`: type the value; the command must end with status 2 before it begins. Return the
    line that it prints."""
    monkeypatch.chdir(tmp_path)

    def begun(**_: Any) -> None:
        pytest.fail("the command began")

    def run(parameter: Parameter, value: str) -> str:
        command = ROOT
        for word in parameter.path:
            command = command.commands[word]
        monkeypatch.setattr(command, "callback", begun)
        for each in command.params:
            if each is not parameter.own:
                monkeypatch.setattr(each, "callback", None)
        monkeypatch.setattr("typer.main.get_command", lambda _: ROOT)
        monkeypatch.setattr("sys.argv", ["replyline", *parameter.line(value)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        (line,) = printed.err.splitlines()
        assert (ended.value.code, printed.out) == (2, ""), line
        assert parameter.label.strip("-").lower() in line.lower()
        assert value in line
        return line

    return run


def bounds_in(line: str) -> list[float]:
    """Return the numbers in the remedy of a line."""
    return [float(each) for each in re.findall(r"-?[0-9.]+", line.split(": write ")[1])]


@pytest.mark.parametrize("parameter", PATHS, ids=str)
@pytest.mark.parametrize("value", ["nofolder/file", "file/below"])
def test_a_path_that_cannot_be_used_is_refused_and_nothing_is_created(
    refused: Refused, tmp_path: Path, parameter: Parameter, value: str
) -> None:
    (tmp_path / "file").write_text("a file is no folder")
    assert "; name " in (line := refused(parameter, value)) or "create it first" in line
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("parameter", NUMBERS, ids=str)
def test_a_number_outside_its_bounds_is_refused_with_them(refused: Refused, parameter: Parameter) -> None:
    least, most = parameter.own.min, parameter.own.max
    assert least is not None, f"{parameter} has no lower bound"
    bounds = [float(each) for each in (least, most) if each is not None]
    wrong = [str(least - 1), "many", *([str(most + 1)] if most is not None else [])]
    if kind_of(parameter.own) is float:
        assert most is not None, f"{parameter} has no upper bound, so it accepts inf"
        wrong.append("nan")
    for value in wrong:
        assert bounds_in(refused(parameter, value)) == bounds


@pytest.mark.parametrize("parameter", CHOICES, ids=str)
def test_a_value_that_is_no_choice_is_refused_with_all_of_them(refused: Refused, parameter: Parameter) -> None:
    *most, last = get_args(kind_of(parameter.own))
    assert f"{parameter.label} nosuch: write {', '.join(most)} or {last}; see: " in refused(parameter, "nosuch")


def test_a_parameter_whose_help_speaks_of_a_file_is_checked_as_a_path() -> None:
    texts = [each for each in PARAMETERS if kind_of(each.own) is str]
    speaks = [each for each in texts if re.search(r"\b(an?|the|of|'s) (\w+ )?(file|folder)\b", each.own.help or "")]
    assert {str(each) for each in speaks if not is_path(each)} == NO_PATHS
