"""A model joins the store whole and as it is asked for, or leaves nothing there."""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from typer.testing import CliRunner

from ops.lifecycle.versions.adding import About, add
from ops.lifecycle.versions.commands import _people_of, versions_app
from ops.lifecycle.versions.signing import sign, write_keys
from shared.errors import ModelError, SettingsError, VersionError
from shared.model.folder import GRAPH, GRAPH_DATA, MANIFEST, TOKENIZER, Source
from shared.settings import Settings, load_settings
from shared.versions.signature import read_private_key, read_public_key
from shared.versions.state import ALIASES
from shared.versions.store import DOCUMENT, GOLDEN, open_version
from tests.support.builders.versions import BASE, write_folder, write_version
from tests.support.models.fixtures import flip
from workers.engine.greedy import golden_failure
from workers.engine.load_model import load_model

ADAPTER = Source(name="adapter", sha256="c" * 64)


def settings_of(tmp_path: Path, **model: Any) -> Settings:
    return load_settings(model={"versions_dir": tmp_path / "store", **model}, worker={"engine": "fake"})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_folder(tmp_path / "prepared")
    return tmp_path / "prepared"


def left(settings: Settings) -> list[str]:
    return sorted(path.name for path in settings.model.versions_dir.iterdir())


def test_a_folder_joins_the_store_with_its_golden_prompts(tmp_path: Path, source: Path) -> None:
    settings = settings_of(tmp_path)
    stored = add(settings, source, About(name="shop-2", system_prompt="Be brief.", notes="try"), 7)
    assert left(settings) == [stored.version.id]
    assert (stored.version.name, stored.version.system_prompt, stored.version.card.notes) == (
        "shop-2",
        "Be brief.",
        "try",
    )
    assert open_version(settings.model, stored.version.id) == stored
    assert len(stored.golden.prompts) == 8
    assert all(golden.output_ids for golden in stored.golden.prompts)
    there = settings.model.model_copy(update={"dir": stored.path, "versions_dir": tmp_path})
    served = load_model(settings.model_copy(update={"model": there}))
    assert golden_failure(served.engine, stored.golden) is None
    assert stored.path.stat().st_mode & 0o055 == 0o055


@pytest.mark.parametrize("packed", ["folder", "raw"])
def test_no_later_write_to_the_source_reaches_a_stored_version(tmp_path: Path, source: Path, packed: str) -> None:
    settings = settings_of(tmp_path)
    given = source if packed == "folder" else write_layout(tmp_path / "layout", source, kind=packed)
    stored = add(settings, given, About(), 7)
    for path in (path for folder in {source, given} for path in folder.rglob("*") if path.is_file()):
        path.write_bytes(b"?" * path.stat().st_size)  # in place, as `cp` and `rsync --inplace` write
    assert open_version(settings.model, stored.version.id) == stored
    assert {path.name: path.stat().st_mode & 0o777 for path in stored.path.iterdir()} == dict.fromkeys(
        (MANIFEST, GRAPH, GRAPH_DATA, TOKENIZER, DOCUMENT, GOLDEN), 0o444
    )


def test_a_version_says_whom_it_learned_from(tmp_path: Path, source: Path) -> None:
    settings = settings_of(tmp_path)
    assert add(settings, source, About(trained_on=("a1", "b2")), 7).version.trained_on == ("a1", "b2")


def test_the_same_model_with_another_prompt_is_another_version(tmp_path: Path, source: Path) -> None:
    settings = settings_of(tmp_path)
    one, other = (add(settings, source, About(system_prompt=text), 7).version for text in ("Be brief.", "Be kind."))
    assert left(settings) == sorted([one.id, other.id])


@pytest.mark.parametrize("damage", [flip, lambda path: os.truncate(path, 3)])
def test_what_is_not_whole_leaves_nothing_in_the_store(tmp_path: Path, source: Path, damage: Any) -> None:
    damage(source / GRAPH_DATA)
    settings = settings_of(tmp_path)
    with pytest.raises(ModelError, match=GRAPH_DATA):
        add(settings, source, About(), 7)
    assert left(settings) == []


def test_a_name_that_no_version_may_have_is_refused(tmp_path: Path, source: Path) -> None:
    with pytest.raises(ModelError, match=r"^--name two words: write letters, digits, - \. _ \(64 at most\)"):
        add(settings_of(tmp_path), source, About(name="two words"), 7)


def test_an_adapter_names_its_own_base_and_no_other(tmp_path: Path) -> None:
    write_folder(tmp_path / "merged", adapter=ADAPTER)
    settings = settings_of(tmp_path)
    assert add(settings, tmp_path / "merged", About(), 7).version.base_revision == BASE.sha256
    with pytest.raises(VersionError, match="--base-revision") as caught:
        add(settings, tmp_path / "merged", About(base_revision="d" * 64), 7)
    assert caught.value.reason == "wrong base revision"


def test_where_keys_are_trusted_a_version_is_signed_by_one_as_it_is_added(tmp_path: Path, source: Path) -> None:
    (tmp_path / "trusted").mkdir()
    name = write_keys(tmp_path / "private", tmp_path / "trusted" / "shop.pem")
    write_keys(tmp_path / "another", tmp_path / "elsewhere.pem")
    settings = settings_of(tmp_path, trusted_keys=tmp_path / "trusted")
    for key, reason in ((None, "unsigned"), ("another", "wrongly signed")):
        with pytest.raises(VersionError, match=f"replyline versions add {source} --key") as caught:
            add(settings, source, About(), 7, key_file=None if key is None else tmp_path / key)
        assert (caught.value.reason, settings.model.versions_dir.exists()) == (reason, False)
    stored = add(settings, source, About(), 7, key_file=tmp_path / "private")
    assert stored.signed_by == name
    assert sign(stored.path, tmp_path / "private") == name
    assert open_version(settings.model, stored.version.id).signed_by == name


def test_only_a_whole_version_of_the_store_is_signed(tmp_path: Path, source: Path) -> None:
    (tmp_path / "trusted").mkdir()
    write_keys(tmp_path / "private", tmp_path / "trusted" / "shop.pem")
    settings = settings_of(tmp_path)
    damaged = add(settings, source, About(), 7).path
    (damaged / GRAPH_DATA).chmod(0o600)
    flip(damaged / GRAPH_DATA)
    earlier = settings.model.versions_dir / write_version(settings.model.versions_dir, earlier=True).id
    for folder, told in ((source, "replyline versions add"), (damaged, "corrupt"), (earlier, "add it again, signed")):
        with pytest.raises(ModelError, match=told):
            sign(folder, tmp_path / "private")


def test_a_key_file_is_readable_by_its_owner_only_and_never_overwritten(tmp_path: Path) -> None:
    write_keys(tmp_path / "private", tmp_path / "public.pem")
    assert (tmp_path / "private").stat().st_mode & 0o077 == 0
    for private, public in (("private", "new.pem"), ("new", "public.pem")):
        with pytest.raises(SettingsError, match="never written over"):
            write_keys(tmp_path / private, tmp_path / public)
    assert not (tmp_path / "new").exists()


def write_layout(layout: Path, source: Path, *, kind: str = "raw", **changes: Any) -> Path:
    """Pack a model folder as ModelPack: `manifest.json` as a tar, the others as `kind`."""
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(data: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(source / MANIFEST, changes.get("member", f"./{MANIFEST}"))
    layers = [{"mediaType": "application/vnd.cncf.model.weight.config.v1.tar", **blob(archive.getvalue())}]
    for path in source.iterdir():
        if path.name != MANIFEST:
            named = {"org.cncf.model.filepath": changes.get("filepath", path.name)}
            media_type = f"application/vnd.cncf.model.weight.v1.{kind}"
            layers.append({"mediaType": media_type, **blob(path.read_bytes()), "annotations": named})
    manifest = {
        "schemaVersion": 2,
        "artifactType": changes.get("artifact", "application/vnd.cncf.model.manifest.v1+json"),
        "layers": layers,
    }
    described = {"mediaType": "application/vnd.oci.image.manifest.v1+json", **blob(json.dumps(manifest).encode())}
    (layout / "index.json").write_text(json.dumps({"manifests": [described] * changes.get("models", 1)}))
    return layout


def test_a_model_pack_becomes_the_same_version_as_its_folder(tmp_path: Path, source: Path) -> None:
    settings = settings_of(tmp_path)
    stored = add(settings, write_layout(tmp_path / "layout", source), About(), 7)
    assert stored.version.id == add(settings_of(tmp_path / "other"), source, About(), 7).version.id
    assert open_version(settings.model, stored.version.id) == stored


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"kind": "tar+gzip"}, "as tar uncompressed"),
        ({"filepath": "../outside"}, "'../outside'"),
        ({"filepath": "same"}, "is there twice"),
        ({"member": "/etc/manifest.json"}, "lie in one folder"),
        ({"artifact": "application/vnd.oci.empty"}, "is no model"),
        ({"models": 2}, "names 2 manifests"),
    ],
)
def test_a_layout_that_is_no_prepared_model_is_refused_in_one_line(
    tmp_path: Path, source: Path, changes: dict[str, Any], line: str
) -> None:
    settings = settings_of(tmp_path)
    with pytest.raises(ModelError, match=line) as caught:
        add(settings, write_layout(tmp_path / "layout", source, **changes), About(), 7)
    assert "\n" not in str(caught.value)
    assert left(settings) == []


def test_a_damaged_layer_is_refused_before_it_is_read(tmp_path: Path, source: Path) -> None:
    layout = write_layout(tmp_path / "layout", source)
    for blob in (layout / "blobs" / "sha256").iterdir():
        flip(blob)
    with pytest.raises(ModelError, match="missing or damaged"):
        add(settings_of(tmp_path), layout, About(), 7)


@pytest.mark.parametrize("name", ALIASES)
def test_a_version_is_not_named_as_an_alias(source: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match=f"--name {name}: is the name of an alias"):
        add(settings_of(tmp_path), source, About(name=name), 7)
    assert left(settings_of(tmp_path)) == []


@pytest.mark.parametrize("option", ["--trained-on", "--system-prompt-file"])
@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\xff\xfe no text", "not UTF-8 at byte 0; save it as UTF-8"),
        (b" \n", "is empty; write the text into it, or leave {} out"),
        (b"0123456789abcdef\nand others", "'and' is no conversation; name people.txt of: replyline learn export"),
    ],
)
def test_a_file_of_another_kind_is_refused_with_its_option_and_the_remedy(
    source: Path, tmp_path: Path, option: str, content: bytes, why: str
) -> None:
    (file := tmp_path / "file").write_bytes(content)
    done = CliRunner().invoke(versions_app, ["add", str(source), option, str(file)])
    if option == "--system-prompt-file" and b"others" in content:
        assert not isinstance(done.exception, SettingsError)  # a prompt may be any text
    else:
        assert str(done.exception) == f"{option} {file}: {why.format(option)}"


def test_a_byte_order_mark_is_no_part_of_a_files_text(tmp_path: Path) -> None:
    (file := tmp_path / "people.txt").write_bytes(b"\xef\xbb\xbf0123456789abcdef\n")
    assert _people_of("--trained-on", file) == ("0123456789abcdef",)


@pytest.mark.parametrize("read", [read_private_key, read_public_key])
@pytest.mark.parametrize(
    "content", [b"", b"# a page\n", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"]
)
def test_a_file_without_a_key_is_named_without_the_librarys_advice(
    tmp_path: Path, read: Callable[[Path], object], content: bytes
) -> None:
    (file := tmp_path / "key").write_bytes(content)
    kind = "private" if read is read_private_key else "public"
    with pytest.raises(SettingsError) as refused:
        read(file)
    assert str(refused.value) == f"{file}: no {kind} key in PEM; run: replyline versions keygen"


def test_a_key_with_a_passphrase_is_refused_with_the_command_that_writes_it_without(tmp_path: Path) -> None:
    secret = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"sesame")
    )
    (file := tmp_path / "key").write_bytes(secret)
    with pytest.raises(SettingsError, match=f"has a passphrase; .*: openssl pkey -in {file} -out FILE"):
        read_private_key(file)
