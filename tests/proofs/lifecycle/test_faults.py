"""Versions that are not what they claim, and a registry that is away."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import json, structs

from ops.lifecycle.versions.signing import write_signature
from ops.stack.kafka_broker import KafkaBroker
from shared.model.folder import GRAPH_DATA
from shared.versions.registry import Added, Checked
from shared.versions.signature import read_private_key
from shared.versions.state import Rule
from shared.versions.store import DOCUMENT
from shared.versions.version import Version
from tests.proofs.lifecycle.conftest import MakeSetting
from tests.proofs.lifecycle.setting import Setting
from tests.proofs.lifecycle.talk import Talk, by_session, diverted
from tests.support.models.fixtures import flip
from tests.support.rows import Rows

SPOILED = "faults: corrupt, truncated, wrongly signed, wrong base"
AWAY = "faults: the registry is away"


@pytest.mark.rows(SPOILED)
async def test_a_spoiled_version_is_never_loaded(
    make_setting: MakeSetting, models: Callable[..., Path], rows: Rows, tmp_path: Path
) -> None:
    """Each is in the registry and has passed its check: it was spoiled on its way to the worker."""
    trusted = tmp_path / "trusted"
    trusted.mkdir()
    keys = {"ours": (tmp_path / "ours", trusted / "ours.pem"), "theirs": (tmp_path / "theirs", tmp_path / "theirs.pem")}
    setting = await make_setting(model__trusted_keys=trusted)
    for private, public in keys.values():
        await setting.done("versions", "keygen", str(private), str(public))
    names = ("corrupt", "truncated", "wrongly signed", "wrong base revision")
    ours = keys["ours"][0]
    first = await setting.add(models("one"), "one", key=ours)
    spoiled = {name: await setting.add(models("two"), name.replace(" ", "-"), key=ours) for name in names}
    for name in ("corrupt", "truncated"):
        (setting.store / spoiled[name] / GRAPH_DATA).chmod(0o600)
    flip(setting.store / spoiled["corrupt"] / GRAPH_DATA)
    data = setting.store / spoiled["truncated"] / GRAPH_DATA
    data.write_bytes(data.read_bytes()[:-1_000])
    wrongly = str(setting.store / spoiled["wrongly signed"])
    await setting.done("versions", "sign", wrongly, "--key", str(keys["theirs"][0]))
    spoiled["wrong base revision"] = await _of_another_base(setting, spoiled["wrong base revision"], ours)
    await setting.done("versions", "use", first)
    await setting.start("champion")
    said = {}
    async with Talk(setting=setting, rate=4.0, seconds=600.0) as talk:
        for name, revision in spoiled.items():
            used = await setting.command("versions", "use", revision, "--wait-s", "120")  # a refusal ends it
            reasons = [line for line in setting.workers[0].logged() if revision in str(line) and name in str(line)]
            said[name] = used.status != 0 and bool(reasons)
        talk.enough()
    judged = await talk.judged()
    served = {answer.response.revision for answer in judged.answers}
    rows.found(
        SPOILED,
        figure=f"refused by name: {said}; {len(judged.answers)} answers, by {served}; {judged.broken[:1]} broken",
        holds=all(said.values()) and served == {first} and not judged.broken,
    )


async def _of_another_base(setting: Setting, revision: str, key: Path) -> str:
    """Give a version of the store a signed document that names another base; return its id."""
    document = json.decode((setting.store / revision / DOCUMENT).read_bytes(), type=Version)
    version = structs.replace(document, base_revision="f" * 64)
    folder = shutil.copytree(setting.store / revision, setting.store / version.id)
    (folder / DOCUMENT).unlink()
    (folder / DOCUMENT).write_bytes(json.encode(version))
    write_signature(folder, read_private_key(key))
    checked = Checked(revision=version.id, author="lifecycle", unix_ms=0)
    await setting.write([Added(version=version, author="lifecycle"), checked])
    return version.id


@pytest.mark.rows(AWAY)
async def test_the_registry_is_away(
    make_setting: MakeSetting, models: Callable[..., Path], rows: Rows, own_broker: KafkaBroker
) -> None:
    """The broker is killed under load, and Redis with it; both come back."""
    setting = await make_setting(broker=own_broker.bootstrap)
    first, second = [await setting.add(models(name), name) for name in ("one", "two")]
    await setting.move(aliases={"champion": first, "canary": second}, rule=Rule(salt="away", share=0.5))
    await setting.start("champion", "champion", "canary")
    before = (await setting.registry()).state
    async with Talk(setting=setting, rate=5.0, seconds=40.0, clients=50) as talk:
        await asyncio.sleep(12.0)
        own_broker.halt(kill=True)
        setting.system.redis.kill()
        await asyncio.sleep(5.0)
        setting.system.redis.start()
        own_broker.start()
    answers = [answer for answer in talk.answered() if answer.by_model]
    aside = diverted(answers, Rule(salt="away", share=0.5))
    on_side = by_session([answer for answer in answers if answer not in aside])
    lanes = {session: {each.lane for each in found} for session, found in on_side.items()}
    torn = [session for session, found in lanes.items() if len(found) > 1]
    after = (await setting.registry()).state
    away = sum(not answer.by_model for answer in talk.answered())
    rows.found(
        AWAY,
        figure=f"{len(torn)} of {len(lanes)} conversations changed sides, {len(aside)} answers diverted; "
        f"the same state: {after == before}; "
        f"{len(answers)} answers by models, {away} by the FAQ meanwhile, {talk.ledger.num_open} open",
        holds=not torn and after == before and talk.ledger.num_open == 0 and {"canary"} in lanes.values(),
    )
