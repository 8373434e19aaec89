"""What the compose smoke test makes of what it is told: containers' states, answers heard."""

import json

import pytest

from tests.smoke.compose import containers_of, not_well
from tests.smoke.load import faults_of


def line(name: str, state: str = "running", health: str = "", exit_code: int = 0) -> dict[str, object]:
    service = name.rsplit("-", 1)[0]
    return {"Name": name, "Service": service, "State": state, "Health": health, "ExitCode": exit_code, "Publishers": []}


GOOD = [line("worker-1", health="healthy"), line("topics-1", "exited")]


@pytest.mark.parametrize("text", [json.dumps(GOOD), "\n".join(json.dumps(one) for one in GOOD)])
def test_both_forms_of_composes_list_are_read(text: str) -> None:
    found = containers_of(text)
    assert [one.name for one in found] == ["worker-1", "topics-1"]
    assert not_well(found, {"worker": 1, "topics": 1}) == ""


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (line("worker-1", health="starting"), "worker-1 is starting"),
        (line("worker-1", health="unhealthy"), "worker-1 is unhealthy"),
        (line("worker-1", "restarting"), "worker-1 is restarting"),
        (line("worker-1", "exited", exit_code=137), "worker-1 is exited"),
    ],
)
def test_what_does_not_serve_is_named(bad: dict[str, object], told: str) -> None:
    assert not_well(containers_of(json.dumps([bad])), {"worker": 1}) == told


def test_too_few_containers_are_named() -> None:
    assert not_well(containers_of(json.dumps(GOOD)), {"worker": 3, "proxy": 1}) == (
        "1 of 3 containers of worker, 0 of 1 containers of proxy"
    )
    assert not_well([], {"worker": 1}) == "0 of 1 containers of worker"


@pytest.mark.parametrize(
    ("heard", "said", "fault"),
    [
        ("Yes.", ["Yes."], None),
        ("", [], "no terminal event"),
        ("Ye", ["Yes."], "2 characters heard, 4 said"),
        ("Yes.", ["Yes.", "Yes."], "2 terminal events"),
    ],
)
def test_an_answer_has_one_end_and_its_own_text(heard: str, said: list[str], fault: str | None) -> None:
    assert faults_of("0.1", heard, said) == ([] if fault is None else [f"question 0.1: {fault}"])
