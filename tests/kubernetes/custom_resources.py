"""Check custom resources against the schemas of their definitions; run with FILE FOLDER.

It runs where `ops/setup/k8s-tools` has installed jsonschema. A field that a schema does not name is a fault: an API
server would drop it without a word.
"""

import sys
from pathlib import Path
from typing import Any

import jsonschema
import yaml

Schema = dict[str, Any]


def strict(schema: Schema) -> Schema:
    """Return the schema, which allows no field that it does not name."""
    found = {name: strict_part(part) for name, part in schema.items()}
    if "properties" in found:
        found["properties"] = {name: strict(part) for name, part in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            found["additionalProperties"] = False
    return found


def strict_part(part: Any) -> Any:
    return strict(part) if isinstance(part, dict) else part


def schemas(folder: Path) -> dict[tuple[str, str], Schema]:
    """Return (apiVersion, kind) → schema of each version that is served."""
    found: dict[tuple[str, str], Schema] = {}
    for file in folder.glob("*.yaml"):
        spec = yaml.safe_load(file.read_text())["spec"]
        for version in spec["versions"]:
            schema = strict(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}  # Kubernetes' own
            found[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema
    return found


def main(file: str, folder: str) -> int:
    known, faults = schemas(Path(folder)), 0
    for each in filter(None, yaml.safe_load_all(Path(file).read_text())):
        kind = each["apiVersion"], each["kind"]
        if kind not in known:
            sys.stderr.write(f"{' '.join(kind)}: no schema in {folder}\n")
            faults += 1
            continue
        for error in jsonschema.Draft202012Validator(known[kind]).iter_errors(each):
            sys.stderr.write(f"{kind[1]} {each['metadata']['name']}: {error.json_path}: {error.message}\n")
            faults += 1
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
