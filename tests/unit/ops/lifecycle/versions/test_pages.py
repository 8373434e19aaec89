"""What the registry prints says what a move changed, and of each version whether it may have traffic."""

from ops.lifecycle.versions import pages
from shared.versions.registry import Added, Checked, Registry
from shared.versions.state import Move, Rule, State
from shared.versions.version import Version

VERSION = Version(name="shop-2", model="m", model_revision="r", manifest_sha256="a" * 64)


def test_a_move_is_told_by_what_changed_its_author_and_its_numbers() -> None:
    registry = Registry()
    for epoch, state in enumerate(
        [
            State(epoch=1, aliases={"champion": "a"}, effective_unix_ms=60_000),
            State(epoch=2, aliases={"champion": "a"}, loading={"canary": "b"}, rung="light"),
            State(epoch=3, aliases={"canary": "b"}, rule=Rule(salt="s", share=0.1, control=True)),
        ],
        1,
    ):
        registry.apply(Move(state=state, author="ann", reason="why", unix_ms=0, numbers={"epoch": epoch}))
    rows = [dict(zip(pages.LOGGED, row, strict=True)) for row in pages.move_rows(registry)]
    assert [row["what"] for row in rows] == [
        "champion – → a; from 1970-01-01T00:01:00Z on",
        "loading canary – → b; rung auto → light",
        "champion a → –; canary – → b; loading canary b → –; rule none → 10% with control; rung light → auto",
    ]
    assert [rows[0][title] for title in ("epoch", "when", "author", "reason", "numbers")] == [
        "1",
        "1970-01-01T00:00:00Z",
        "ann",
        "why",
        "epoch=1",
    ]


def test_a_version_is_listed_with_its_aliases_and_its_last_check() -> None:
    registry = Registry()
    registry.apply(Added(version=VERSION, author="ann", signed_by="key"))

    def listed() -> dict[str, str]:
        [row] = pages.version_rows(registry, 5)
        return dict(zip(pages.LISTED, row, strict=True))

    assert (listed()["checked"], listed()["signed by"], listed()["aliases"]) == ("no", "key", "")
    registry.apply(Checked(revision=VERSION.id, author="ann", unix_ms=1, whole=False))
    assert listed()["checked"] == "in part"
    registry.apply(Checked(revision=VERSION.id, author="ann", unix_ms=1, failures=("corrupt",)))
    assert listed()["checked"] == "failed"
    registry.apply(Checked(revision=VERSION.id, author="ann", unix_ms=2, whole=False))
    assert listed()["checked"] == "failed", "until the whole set is passed"
    registry.apply(Checked(revision=VERSION.id, author="ann", unix_ms=2))
    aliases = {"champion": VERSION.id, "light": VERSION.id}
    registry.apply(Move(state=State(epoch=1, aliases=aliases), author="ann", reason="", unix_ms=3))
    assert (listed()["checked"], listed()["aliases"]) == ("passed", "champion,light")
    assert pages.version_page(registry, VERSION.id, 5)["check"]["unix_ms"] == 2
    for state in (State(epoch=2), State(epoch=3, aliases=aliases, effective_unix_ms=6)):
        registry.apply(Move(state=state, author="ann", reason="", unix_ms=4))
    assert listed()["aliases"] == "champion (waits),light (waits)"
    assert pages.version_page(registry, VERSION.id, 5)["aliases"] == ["champion (waits)", "light (waits)"]
    assert pages.version_page(registry, VERSION.id, 6)["aliases"] == ["champion", "light"]


def test_who_holds_a_version_is_told_by_name() -> None:
    both = {"w-1": True, "w-2": True}
    assert pages.held("a", both) == "a is loaded and served at once by 2 of 2 workers of champion: w-1, w-2"
    assert pages.held("a", both | {"w-3": False}).endswith("the version before serves meanwhile: w-3")
    assert pages.held("a", {}) == "no worker of champion lives: the first to start loads a"
