"""What inorder depends on, from requirements.lock and the metadata of installed packages. It connects to nothing.

    python scripts/dependencies.py notice              NOTICE anew: what an installation may bring, with licences
    python scripts/dependencies.py sbom FILE           a bill of materials in CycloneDX 1.6
    python scripts/dependencies.py audit [ADVISORIES]  exit 1 where something is wrong

`audit` finds: a package of the lock without hashes; an installed version that differs from the lock; a dependency of
pyproject.toml that the lock lacks or whose version does not fit; a licence that is not in `LICENCES`. With ADVISORIES,
a folder or zip of advisories in the format of OSV, such as a copy of its export for PyPI, also every version of the
lock that an advisory names. Without it no vulnerability can be found.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
import uuid
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
NOTICE = ROOT / "NOTICE"

# A part of a licence's name is enough: metadata write them in many ways.
LICENCES = (
    "Apache",
    "MIT",
    "BSD",
    "ISC",
    "PSF",
    "Python",
    "MPL",
    "Mozilla",
    "Unlicense",
    "Zlib",
    "LGPL",
    "CC0",
    "HPND",
)

_HEAD = """\
inorder
Licensed under the Apache License, Version 2.0; see LICENSE.

The package contains one work of others: htmx 2.0.11 (Zero-Clause BSD), in src/inorder/web/static.

It installs, depending on the chosen extras, the packages below, which are not part of it. The licences are those
that their metadata name. Embedded servers, for development, are not part of it either: PostgreSQL (PostgreSQL
License) comes as a package, Apache Kafka and Apache Cassandra (Apache-2.0) are downloaded when they are first used.

Written by `make notice` from requirements.lock.

"""


@dataclass(frozen=True, slots=True)
class Locked:
    """One package of the lock."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...] = field(default=())

    @property
    def fits_here(self) -> bool:
        """Whether its marker holds on this machine and Python; a package may have several versions, with markers."""
        return not self.marker or Marker(self.marker).evaluate()


def read_lock(text: str) -> list[Locked]:
    """The packages of a lock."""
    found = []
    for entry in re.split(r"\n(?=\S)", text.replace("\\\n", " ").strip()):
        pinned = re.match(r"([\w.-]+)==([^\s;]+)(?:\s*;\s*(.*?))?(?=\s+--hash|\s*$)", entry)
        if pinned is None:
            raise SystemExit(f"requirements.lock has a line that pins nothing: {entry[:60]}")
        name = canonicalize_name(pinned[1])
        found.append(Locked(name, pinned[2], pinned[3] or "", tuple(re.findall(r"--hash=sha256:(\w+)", entry))))
    return found


def closure(requirements: Iterable[str]) -> set[str]:
    """The names of installed packages that these requirements bring, on this machine and Python."""
    names: set[str] = set()
    waiting = [(Requirement(text), frozenset[str]()) for text in requirements]
    while waiting:
        requirement, extras = waiting.pop()
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in extras or {""}):
            continue
        name = canonicalize_name(requirement.name)
        new = name not in names
        names.add(name)
        if new or requirement.extras:
            wanted = frozenset({"", *requirement.extras})
            waiting += [(Requirement(text), wanted) for text in metadata.requires(name) or ()]
    return names


def declared(project: dict[str, Any]) -> list[str]:
    """What an installation with every extra requires directly."""
    extras = project["optional-dependencies"]
    return [*project["dependencies"], *(text for name, texts in extras.items() if name != "all" for text in texts)]


def licence(name: str) -> str:
    """The licence that the metadata or its text name; empty where the package is not installed."""
    try:
        about: Any = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return ""
    if expression := about.get("License-Expression"):
        return str(expression)
    classified = [text.rpartition(" :: ")[2] for text in about.get_all("Classifier", []) if text.startswith("License")]
    plain = (about.get("License") or "").strip().partition("\n")[0]
    specific = [text for text in classified if text != "OSI Approved"]
    return ", ".join(specific) or plain or _first_line(name, about.get("License-File")) or "unknown"


def _first_line(name: str, file: str | None) -> str:
    """The title of a licence that only its text names."""
    text = file and metadata.distribution(name).read_text(f"licenses/{file}")
    return text.strip().partition("\n")[0].strip() if text else ""


def notice(lock: list[Locked], project: dict[str, Any]) -> str:
    """The text of NOTICE."""
    lines = []
    for name in sorted(closure(declared(project))):
        versions = ", ".join(each.version for each in lock if each.name == name)
        lines.append(f"{name} {versions}: {licence(name)}\n")
    return _HEAD + "".join(lines)


def bill(lock_text: str, project: dict[str, Any]) -> dict[str, Any]:
    """The bill of materials; the same for the same lock, so it has no time of its making."""
    lock = read_lock(lock_text)
    needed, optional = closure(project["dependencies"]), closure(declared(project))
    components = []
    for locked in sorted(lock, key=lambda each: (each.name, each.version)):
        name = locked.name
        component: dict[str, Any] = {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{locked.version}",
            "name": name,
            "version": locked.version,
            "purl": f"pkg:pypi/{name}@{locked.version}",
            "scope": "required" if name in needed else "optional" if name in optional else "excluded",
            "hashes": [{"alg": "SHA-256", "content": content} for content in locked.hashes],
        }
        if known := licence(name):
            component["licenses"] = [{"license": {"name": known}}]
        components.append(component)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.UUID(hashlib.sha256(lock_text.encode()).hexdigest()[:32], version=4)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": "inorder",
                "name": project["name"],
                "version": project["version"],
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": components,
    }


# The audit.


def audit(lock: list[Locked], project: dict[str, Any], advisories: Path | None) -> list[str]:
    """Everything that is wrong, a sentence each."""
    found = [f"{each.name} {each.version} has no hash in the lock." for each in lock if not each.hashes]
    for text in declared(project):
        requirement = Requirement(text)
        versions = [each.version for each in lock if each.name == canonicalize_name(requirement.name)]
        if not versions or not all(requirement.specifier.contains(each, prereleases=True) for each in versions):
            found.append(f"pyproject.toml requires {text}, and the lock has {', '.join(versions) or 'none'}.")
    for each in (each for each in lock if each.fits_here):
        try:
            installed = metadata.version(each.name)
        except metadata.PackageNotFoundError:
            continue  # of another platform or Python
        if installed != each.version:
            found.append(f"{each.name} {installed} is installed, and the lock has {each.version}.")
        if not any(part in licence(each.name) for part in LICENCES):
            found.append(
                f"{each.name} {each.version} has the licence {licence(each.name)!r}, which is not in LICENCES."
            )
    for advisory in read_advisories(advisories) if advisories else ():
        found += matches(advisory, lock)
    return found


def read_advisories(place: Path) -> Iterator[dict[str, Any]]:
    """The advisories in a folder or zip of JSON files."""
    if place.is_dir():
        for file in sorted(place.rglob("*.json")):
            yield json.loads(file.read_bytes())
        return
    with zipfile.ZipFile(place) as archive:
        for name in archive.namelist():
            if name.endswith(".json"):
                yield json.loads(archive.read(name))


def matches(advisory: dict[str, Any], lock: list[Locked]) -> Iterator[str]:
    """A sentence for each version of the lock that an advisory names."""
    if advisory.get("withdrawn"):
        return
    for affected in advisory.get("affected", ()):
        package = affected.get("package", {})
        name = canonicalize_name(package.get("name", "")) if package.get("ecosystem") == "PyPI" else None
        for locked in lock:
            if locked.name == name and _affects(affected, locked.version):
                yield f"{locked.name} {locked.version}: {advisory.get('id')}, {advisory.get('summary', 'no summary')}"


def _affects(affected: dict[str, Any], version: str) -> bool:
    if version in affected.get("versions", ()):
        return True
    return any(
        _in_range(each.get("events", ()), version) for each in affected.get("ranges", ()) if each["type"] != "GIT"
    )


def _in_range(events: Iterable[dict[str, str]], version: str) -> bool:
    """Whether a version lies in one of the spans that the events begin and end."""
    ours, inside = Version(version), False
    for event in events:
        [(kind, text)] = event.items()
        try:
            at = Version(text)
        except InvalidVersion:
            return True  # better one finding too many
        if kind == "introduced" and ours >= at:
            inside = True
        elif (kind == "fixed" and ours >= at) or (kind == "last_affected" and ours > at):
            inside = False
    return inside


def main(arguments: list[str]) -> int:
    """Runs one command; returns the exit code."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    text = LOCK.read_text("utf-8")
    match arguments:
        case ["notice"]:
            NOTICE.write_text(notice(read_lock(text), project), "utf-8")
        case ["sbom", file]:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).write_text(json.dumps(bill(text, project), indent=2) + "\n", "utf-8")
        case ["audit", *place] if len(place) <= 1:
            lock = read_lock(text)
            found = audit(lock, project, Path(place[0]) if place else None)
            checked = "with the advisories" if place else "without advisories: no vulnerability can be found"
            sys.stdout.write("".join(f"{line}\n" for line in found))
            sys.stdout.write(f"{len(lock)} packages, {len(found)} findings, {checked}.\n")
            return 1 if found else 0
        case _:
            sys.stderr.write(__doc__ or "")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
