"""Incidents on disk: a folder with one JSON file each, which other programs can read and people can copy."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from ops.operate.incidents.incident import Incident
from shared.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Shelf:
    """The incidents in one folder, which is created with the first incident."""

    folder: Path

    def all(self) -> list[Incident]:
        """Return all incidents, the oldest first. Raises `SettingsError` for a file that is not an incident."""
        return [self._read(path) for path in sorted(self.folder.glob("*.json"))]

    def find(self, name: str) -> Incident:
        """Return the incident whose id begins with `name`. Raises `SettingsError` if there is no such incident, or
        several."""
        found = [each for each in self.all() if each.id.startswith(name)]
        if len(found) == 1:
            return found[0]
        why = "no such incident" if not found else f"{len(found)} ids begin with this"
        raise SettingsError(f"{name}: {why} in {self.folder}; see: replyline incidents list")

    def keep(self, incident: Incident) -> Path:
        """Write an incident, replacing its file. Raises `SettingsError`."""
        path = self.folder / f"{incident.id}.json"
        beside = path.with_suffix(".part")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(msgspec.json.format(msgspec.json.encode(incident), indent=2) + b"\n")
            beside.replace(path)
        except OSError as error:
            raise SettingsError(f"--incidents {self.folder}: {error.strerror}; name a folder to write to") from None
        return path

    def _read(self, path: Path) -> Incident:
        try:
            incident = msgspec.json.decode(path.read_bytes(), type=Incident)
        except (OSError, msgspec.MsgspecError) as error:
            raise SettingsError(f"{path}: not an incident ({error}); move it away") from None
        if not incident.found:
            raise SettingsError(f"{path}: not an incident (it has no causes); move it away")
        return incident
