"""Check that alerts and queries of rendered charts are about their own release, for `make k8s-check`: run with FILES.

The tests of ops/alerts run twice on each different set of rendered rules: with the release's own series, where each
alert fires as they say, and with those of another release in the namespace, for which no alert may.
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
_OWN: Final = 'namespace="default",helm_release="replyline"'
_OTHER: Final = 'namespace="default",helm_release="another"'
# The release's own gateway is well, or its absence would be an alert.
_WELL: Final = {"series": f'up{{{_OWN},job="gateway",instance="own"}}', "values": "1x200"}
Object = dict[str, Any]


def of_release(series: str, scope: str) -> str:
    name, _, labels = series.partition("{")
    return f"{name}{{{scope}," + labels if labels else f"{name}{{{scope}}}"


def expected(asked: Object, scope: str) -> list[Object]:
    """Return the samples with the labels that the chart adds to an alert; none for another release's series."""
    samples = asked["exp_samples"] if scope == _OWN else []
    return [
        {"labels": of_release(labels, scope) if labels.startswith("ALERTS") else labels, "value": float(value)}
        for labels, value in ((each["labels"], each["value"]) for each in samples)
    ]


def tests_of(scope: str) -> Object:
    """Return the tests of ops/alerts with series of this scope."""
    # As texts: 0x84, a 0 and 84 more, is a number of YAML.
    read: Object = yaml.load((ROOT / "ops" / "alerts" / "tests.yml").read_text(), yaml.BaseLoader)
    for test in read["tests"]:
        test["input_series"] = [each | {"series": of_release(each["series"], scope)} for each in test["input_series"]]
        test.pop("alert_rule_test", None)  # texts, which are the same
        if scope == _OTHER:
            test["input_series"] = [*test["input_series"], _WELL]
        asked = [each | {"exp_samples": expected(each, scope)} for each in test.get("promql_expr_test", ())]
        test["promql_expr_test"] = asked
    read["tests"] = [test for test in read["tests"] if test["promql_expr_test"]]
    return read


def faults(objects: Iterable[Object], folder: Path) -> Iterator[str]:
    tried: list[Object] = []
    for each in objects:
        if each["kind"] == "ScaledObject":
            query = each["spec"]["triggers"][0]["metadata"]["query"]
            if _OWN not in re.sub(r'pool="[^"]*",', "", query):
                yield f"KEDA asks {query}"
        if each["kind"] == "PrometheusRule" and each["spec"] not in tried:
            tried.append(each["spec"])
            (folder / "rules.yml").write_text(yaml.safe_dump(each["spec"]))
            for scope in (_OWN, _OTHER):
                (folder / "tests.yml").write_text(yaml.safe_dump(tests_of(scope)))
                ran = subprocess.run(
                    ["promtool", "test", "rules", folder / "tests.yml"], capture_output=True, text=True, check=False
                )
                if ran.returncode:
                    yield f"series of {scope}: {ran.stdout}{ran.stderr}"


def main(*files: str) -> int:
    objects = (each for file in files for each in yaml.safe_load_all(Path(file).read_text()) if each)
    with TemporaryDirectory() as folder:
        found = list(faults(objects, Path(folder)))
    for fault in found:
        sys.stderr.write(f"{fault}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
