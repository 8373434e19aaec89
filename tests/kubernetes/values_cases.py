"""Render the chart with values that are null or of another type, with odd names, and as two releases, for
`make k8s-check`.

Each value of values.yaml and of every example is tried. It renders, or helm ends with a line that names the value. A
line about a template is a fault: its reader has written values.
"""

import copy
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml

from tests.kubernetes.manifests import PODS, Object, faults

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "ops" / "k8s" / "replyline"
EXAMPLES: Final = sorted((CHART.parent / "examples").glob("*.yaml"))
# What Go or helm says about a template, not about a value.
_OF_TEMPLATES: Final = ("nil pointer", "error calling", "wrong type", "can't evaluate", "<nil>", "YAML parse error")
_OTHERS: Final = {dict: "text", list: {"a": "map"}, str: ["list"], int: ["list"], bool: ["list"], type(None): None}
_NAMES: Final = ("a", "2026", "a.b", "chat-" + "x" * 48, "a" * 53, "x" * 40 + "-1", "x" * 40 + "-2")
# What schemas name by a wrong place, or a template would write into a manifest.
_ODD: Final = (
    {"workers": {"früh": {"replicas": 1}}},
    {"workers": {"more": dict.fromkeys(("replicas", "settings", "resources", "autoscaling", "lane"))}},
    {"workers": {"main": {"autoscaling": {"min": 1, "max": 3, "keda": None, "hpa": {"metric": None}}}}},
    {"workers": {"main": {"autoscaling": {"min": 1, "max": 3, "hpa": None}}}},
    {"workers": {"main": {"buckets": []}}},
    {"settings": {"replyline_tenant": "a"}},
    {"secrets": {"auth": "a"}},
    {"networkPolicy": {"monitoringNamespace": "über", "apiServerPort": 0}},
    {"topologyKeys": [], "image": {"pullSecrets": []}, "gateway": {"tolerations": []}},
)
_IMPOSSIBLE: Final[tuple[tuple[tuple[str, ...], Any], ...]] = (
    *((("image", "repository"), value) for value in ("", " ", "r.example/a:1", "A/B", "https://r.example/a")),
    *((("image", "tag"), value) for value in ("1 2", ":1", "-1")),
    *((("image", "pullSecrets"), value) for value in ([""], [{"name": ""}], [{"name": "A_b"}])),
    *(
        (("gateway", "ingress", "host"), value)
        for value in ("https://a.example", "A.example", "a.example/chat", "a:80")
    ),
)
# Of these the chart's other objects make no use.
_MAY_DIFFER: Final = {
    *("REPLYLINE_KAFKA__BOOTSTRAP_SERVERS", "REPLYLINE_REDIS__URL", "REPLYLINE_KV_REDIS__URL", "REPLYLINE_MODEL__DIR"),
    *("REPLYLINE_WORKER__CACHE_DIR", "REPLYLINE_WORKER__THREADS", "REPLYLINE_GATEWAY__CURSOR_SECRET_FILE"),
}
Values = dict[str, Any]
# By the schema, or by a template's own check.
_NAMED: Final = re.compile(r"at '/[\w/~.-]+': |: [\w.]+: ")
Case = tuple[str, Values]
"""What is tried, and the values."""


def paths(values: Values, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in values.items():
        yield (*above, name)
        if isinstance(value, dict):
            yield from paths(value, (*above, name))


def changed(values: Values, path: tuple[str, ...], value: object) -> Values:
    """Return a copy of the values with another one at `path`."""
    found = copy.deepcopy(values)
    holder = found
    for name in path[:-1]:
        holder = holder.setdefault(name, {})
    holder[path[-1]] = value
    return found


def cases() -> Iterator[Case]:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    base = {"cursorSecretName": "chat-cursor"}
    yield from ((str(odd), base | odd) for odd in _ODD)
    for source, values, known in [
        ("values.yaml", base, defaults),
        *((file.name, read, read) for file in EXAMPLES for read in [yaml.safe_load(file.read_text())]),
    ]:
        for path in paths(known):
            given: Any = known
            for name in path:
                given = given[name]
            for other in (None, _OTHERS[type(given)]):
                yield f"{source}: {'.'.join(path)}: {other}", changed(values, path, other)


def render(folder: Path, values: Values, name: str = "chat") -> tuple[str, str]:
    """Return the manifests, and what helm says where it makes none."""
    file = folder / f"{id(values)}.yaml"
    file.write_text(yaml.safe_dump(values, allow_unicode=True))
    command = (ROOT / ".cache/k8s/helm", "template", name, CHART, "--values", file, "--kube-version", "1.37.0")
    made = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    file.unlink()
    said = [line for line in made.stderr.splitlines() if "found symbolic link" not in line]
    return made.stdout, "" if made.returncode == 0 else "\n".join(said)


def fault(folder: Path, case: Case) -> str:
    tried, values = case
    _, said = render(folder, values)
    if any(each in said for each in _OF_TEMPLATES) or (said and not _NAMED.search(said)):
        return f"{tried}: {said}"
    return ""


def odd_names(folder: Path) -> Iterator[str]:
    """Render static and sized pools with the longest name, of releases with odd ones: no two share an object's name."""
    pools = {"p" * 20: {"static": True}, "q" * 20: {"autoscaling": {"min": 1, "max": 3, "hpa": {}}}}
    values = {"cursorSecretName": "c", "workers": pools, "gateway": {"grpc": True, "ingress": {"enabled": True}}}
    seen: dict[tuple[str, str], str] = {}
    for name in _NAMES:
        made, said = render(folder, values, name)
        objects = [each for each in yaml.safe_load_all(made) if each]
        yield from (f"release {name}: {fault}" for fault in [said, *faults(objects)] if fault)
        for each in objects:
            other = seen.setdefault((each["kind"], each["metadata"]["name"]), name)
            if other != name:
                yield f"releases {name} and {other}: both have {each['kind']} {each['metadata']['name']}"


def objects_of(folder: Path, values: Values, name: str = "chat") -> list[Object]:
    return [each for each in yaml.safe_load_all(render(folder, values, name)[0]) if each]


def two_releases(folder: Path) -> Iterator[str]:
    """Render each example as two releases of a namespace: each object bears its release's name, and none names an
    object of the other or selects its pods."""
    for file in EXAMPLES:
        values = yaml.safe_load(file.read_text())
        releases = {name: objects_of(folder, values, name) for name in ("release-1", "release-2")}
        for (name, ours), (other, theirs) in permutations(releases.items(), 2):
            pods = [each["spec"]["template"]["metadata"]["labels"] for each in theirs if each["kind"] in PODS]
            for each in ours:
                shown = yaml.safe_dump(each)
                chosen = [labels for labels in label_selectors(each) for pod in pods if labels.items() <= pod.items()]
                if name not in each["metadata"]["name"] or other in shown or chosen:
                    yield f"{file.name}: {each['kind']} {each['metadata']['name']} is not {name}'s alone: {chosen}"


def label_selectors(value: Any, name: str = "") -> Iterator[dict[str, str]]:
    """Yield the labels by which an object selects pods, at any depth; not those of namespaces."""
    if isinstance(value, list):
        for each in value:
            yield from label_selectors(each, name)
    elif isinstance(value, dict):
        if name == "matchLabels" or (name == "selector" and not value.keys() & {"matchLabels", "matchExpressions"}):
            yield value
        for inner in value.keys() - {"namespaceSelector"}:
            yield from label_selectors(value[inner], inner)


def restored(folder: Path) -> Iterator[str]:
    """Return what a rollback, which applies the earlier objects and runs no hook, would not bring back.

    Settings are in the pods' templates, so another setting starts new pods, and the earlier one renders the earlier
    objects, as GitOps expects too. Only the job that creates topics is a hook. An uninstall keeps nothing.
    """
    for file in EXAMPLES:
        values = yaml.safe_load(file.read_text())
        other = changed(values, ("settings", "REPLYLINE_LOG__LEVEL"), "error")
        before, after, again = (objects_of(folder, each) for each in (values, other, values))
        if before != again:
            yield f"{file.name}: a second rendering differs from the first"
        for old, new in zip(before, after, strict=True):
            notes = old["metadata"].get("annotations") or {}
            if ("helm.sh/hook" in notes) != (old["kind"] == "Job") or "helm.sh/resource-policy" in notes:
                yield f"{file.name}: {old['kind']} {old['metadata']['name']}: {notes}"
            if old["kind"] in PODS and old["spec"]["template"] == new["spec"]["template"]:
                yield f"{file.name}: {old['kind']} {old['metadata']['name']}: another setting starts no new pods"


def refused(folder: Path) -> Iterator[str]:
    """Try what no cluster can run, and each variable of the pods as a setting: helm refuses it by its name, unless the
    chart's other objects do not depend on it."""
    base: Values = {"cursorSecretName": "c", "gateway": {"grpc": True}}
    tried = [(path, changed(base, path, value)) for path, value in _IMPOSSIBLE]
    for each in objects_of(folder, base):
        if each["kind"] in PODS:
            ((container,), gateway) = (
                each["spec"]["template"]["spec"]["containers"],
                "worker" not in each["metadata"]["name"],
            )
            where = ("gateway", "settings") if gateway else ("workers", "main", "settings")
            names = {variable["name"] for variable in container["env"]} - _MAY_DIFFER
            tried += [
                ((*place, name), changed(base, (*place, name), "1"))
                for name in names
                for place in (where, ("settings",))
            ]
    for path, values in tried:
        _, said = render(folder, values)
        if path[-1] not in said or not _NAMED.search(said):
            yield f"{'.'.join(path)}: accepted, or refused by another name: {said}"


def main() -> int:
    with TemporaryDirectory() as name, ThreadPoolExecutor(2) as pool:
        folder = Path(name)
        tried = list(cases())
        found = [each for each in pool.map(lambda case: fault(folder, case), tried) if each]
        found += [*odd_names(folder), *two_releases(folder), *restored(folder), *refused(folder)]
    for each in found:
        sys.stderr.write(f"{each}\n")
    if not found:
        sys.stdout.write(f"k8s-check: {len(tried)} values that are null or of another type: good\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
