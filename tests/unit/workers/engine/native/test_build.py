"""The builder: choice of compiler, skipped kernels, cached libraries and their verification."""

import ctypes
import os
import platform
import shutil
import time
from pathlib import Path

import pytest

from shared.settings import WorkerSettings
from tests.support.models.native_library import native_dir
from workers.engine.native.build import (
    KERNELS,
    LIBRARY,
    Built,
    Compiler,
    Recipe,
    build,
    compilers,
    ensure_built,
    find_built,
    note_use,
    remove_unused,
)
from workers.engine.native.load_native import find_library
from workers.engine.unusable import Unusable

ENGINE = """
#define EACH(name) extern const char *const kernel_##name;
KERNELS
#undef EACH
#define EACH(name) kernel_##name,
const char *kernel(int i) { const char *all[] = {KERNELS 0}; return all[i]; }
"""
STEP = """
#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)
#define SYMBOL_(name) kernel_##name
#define SYMBOL(name) SYMBOL_(name)
const char *const SYMBOL(KERNEL) = TEXT(KERNEL);
"""
NAMES = list(KERNELS.get(platform.machine(), {"portable": ()}))
FIRST = NAMES[0]


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """Two small sources in place of the engine's."""
    sources = tmp_path / "source"
    sources.mkdir()
    (sources / "engine.c").write_text(ENGINE)
    (sources / "step.c").write_text(STEP)
    return Recipe(sources)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "native"


def compiler_that_says(tmp_path: Path, script: str) -> Compiler:
    path = tmp_path / "cc-of-the-test"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Compiler("cc", (str(path),))


def test_a_library_has_every_kernel_and_is_found_again(recipe: Recipe, directory: Path) -> None:
    built = build(directory, recipe, next(compilers({"CC": "cc"})))
    assert isinstance(built, Built), built
    assert (list(built.kernels), built.left_out) == (NAMES, {})
    assert find_built(directory, recipe) == built
    library = ctypes.CDLL(str(recipe.folder(directory) / LIBRARY))
    library.kernel.restype = ctypes.c_char_p
    assert [library.kernel(i).decode() for i in range(len(NAMES))] == [name.replace("-", "_") for name in NAMES]
    assert list(directory.iterdir()) == [recipe.folder(directory)], "what it compiled in is gone"


def test_every_kernel_of_the_engine_compiles() -> None:
    """Of the real sources: one that does not would be left out, and a slower one serve."""
    built = find_built(native_dir(), Recipe())
    assert isinstance(built, Built)
    assert (list(built.kernels), built.left_out) == (NAMES, {})


def test_one_compiler_gives_the_same_bytes_wherever_it_builds(recipe: Recipe, tmp_path: Path) -> None:
    one, other = (build(tmp_path / name, recipe, Compiler("cc", ("cc",))) for name in ("one", "other"))
    assert isinstance(one, Built)
    assert one == other


def test_a_kernel_with_an_unknown_compiler_flag_is_skipped_and_reported(
    recipe: Recipe, directory: Path, tmp_path: Path
) -> None:
    flag = recipe.kernels[FIRST][-1]
    refuse = f'for a; do [ "$a" = {flag} ] && {{ echo "cc: error: unrecognized option {flag}" >&2; exit 1; }}; done'
    built = build(directory, recipe, compiler_that_says(tmp_path, f'{refuse}\nexec cc "$@"'))
    assert isinstance(built, Built)
    assert FIRST not in built.kernels
    assert f"; without {FIRST} (cc: error: unrecognized option {flag})" in built.describe()


def test_a_compiler_that_fails_is_reported_in_one_line_and_leaves_nothing(
    recipe: Recipe, directory: Path, tmp_path: Path
) -> None:
    found = build(
        directory, recipe, compiler_that_says(tmp_path, "echo 'stdio.h: fatal error: No such file' >&2; exit 1")
    )
    assert isinstance(found, Unusable)
    assert "cc cannot compile it (stdio.h: fatal error: No such file); name another: CC=gcc" in found.reason
    assert list(directory.iterdir()) == []


def test_the_next_compiler_is_tried_if_one_fails(
    recipe: Recipe, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = compiler_that_says(tmp_path, "exit 1")
    monkeypatch.setattr("workers.engine.native.build.compilers", lambda _: [broken, Compiler("gcc", ("cc",))])
    built = ensure_built(directory, recipe, {})
    assert isinstance(built, Built)
    assert built.compiler.startswith("gcc: ")


@pytest.mark.parametrize(
    ("environ", "reason"),
    [
        ({"PATH": ""}, "no C compiler is found; install gcc, or the Python package ziglang, then run: replyline"),
        ({"CC": "no-such-cc -m64"}, "CC=no-such-cc -m64 cannot compile it (no-such-cc: No such file or directory)"),
    ],
    ids=["none", "CC"],
)
def test_without_a_compiler_one_line_names_the_remedy(
    recipe: Recipe, directory: Path, environ: dict[str, str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.engine.native.build.zig_for", lambda _machine: None)
    found = ensure_built(directory, recipe, environ)
    assert isinstance(found, Unusable)
    assert reason in found.reason


@pytest.mark.parametrize("damage", ["half", "foreign", "unreadable", "lost"])
def test_a_damaged_library_is_refused_and_rebuilt(recipe: Recipe, directory: Path, damage: str) -> None:
    built = ensure_built(directory, recipe, {"CC": "cc"})
    library = recipe.folder(directory) / LIBRARY
    match damage:
        case "half":
            library.write_bytes(library.read_bytes()[:4_000])
        case "foreign":
            library.write_bytes(b"\x7fELF of another")
        case "unreadable":
            (library.parent / "built.json").write_bytes(b'{"sha256"')
        case "lost":
            library.unlink()
    found = find_built(directory, recipe)
    assert isinstance(found, Unusable)
    assert "; run: replyline model prepare" in found.reason
    assert ensure_built(directory, recipe, {"CC": "cc"}) == built == find_built(directory, recipe)


def test_changed_sources_are_another_library(recipe: Recipe, directory: Path) -> None:
    ensure_built(directory, recipe, {"CC": "cc"})
    (recipe.sources / "native.h").write_text("/* */")
    assert isinstance(find_built(directory, recipe), Unusable)


def test_a_folder_that_cannot_be_written_is_named(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = ensure_built(tmp_path / "file", recipe, {"CC": "cc"})
    assert isinstance(found, Unusable)
    assert "REPLYLINE_WORKER__NATIVE_DIR" in found.reason


def test_a_mapped_library_stays_intact(recipe: Recipe, directory: Path) -> None:
    """A worker continues with its library while another is built in its place."""
    ensure_built(directory, recipe, {"CC": "cc"})
    library = ctypes.CDLL(str(recipe.folder(directory) / LIBRARY))
    library.kernel.restype = ctypes.c_char_p
    assert isinstance(build(directory, recipe, Compiler("cc", ("cc",))), Built)
    assert library.kernel(0).decode() == FIRST.replace("-", "_")


def test_cc_names_the_compiler_alone() -> None:
    assert [each.argv for each in compilers({"CC": "gcc -m64", "PATH": "/usr/bin"})] == [("gcc", "-m64")]


WEEK_S = 7 * 86_400


def test_a_build_removes_libraries_that_no_process_loaded_for_a_week(recipe: Recipe, directory: Path) -> None:
    """What a worker has loaded since stays, and so does what is not ours."""
    folders = [directory / name for name in ("0" * 16, "1" * 16, ".building-x", "theirs")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "built.json").touch()
        for path in (folder / "built.json", folder):
            os.utime(path, (time.time() - WEEK_S - 60,) * 2)
    note_use(folders[1])
    build(directory, recipe, next(compilers({"CC": "cc"})))
    assert set(directory.iterdir()) == {recipe.folder(directory), folders[1], folders[3]}


def test_a_file_removed_by_another_process_at_the_same_time_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / ("0" * 16)
    old.mkdir()
    rmtree = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", lambda path, **how: (rmtree(path), rmtree(path, **how)))
    remove_unused(tmp_path / ("1" * 16), time.time() + 2 * WEEK_S)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(Path, "iterdir", lambda _: iter([old]))
    remove_unused(tmp_path / ("1" * 16), time.time() + 2 * WEEK_S)


def test_a_worker_that_loads_a_library_notes_it(directory: Path) -> None:
    """Where it may not write it loads the library all the same."""
    note_use(directory / "none")
    recipe, worker = Recipe(), WorkerSettings(native_dir=native_dir())
    built = recipe.folder(native_dir()) / "built.json"
    os.utime(built, (0, 0))
    found = find_library(worker)
    assert not isinstance(found, Unusable)
    assert time.time() - built.stat().st_mtime < WEEK_S
