"""The storage of a KRaft node: formatted once by Kafka's own tool, then copied with new identities."""

from __future__ import annotations

import re
import shutil
import tempfile
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

_IDENTITIES = re.compile(r"^(cluster\.id|directory\.id)=.*$", re.MULTILINE)


def new_identity() -> str:
    """A random id in Kafka's spelling, which must not begin with a dash."""
    while (identity := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return identity


def copy_storage(template: Path, data: Path) -> None:
    """Fill the empty folder `data` as formatting would, for a cluster of its own."""
    shutil.copytree(template, data, dirs_exist_ok=True)
    meta = data / "meta.properties"
    text = _IDENTITIES.sub(lambda match: f"{match[1]}={new_identity()}", meta.read_text("utf-8"))
    meta.write_text(text, encoding="utf-8")


def keep_as_template(data: Path, template: Path) -> None:
    """Keep freshly formatted storage for the next node; whoever is first wins, for all are alike."""
    template.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=template.parent))
    shutil.copytree(data, fresh, dirs_exist_ok=True)
    try:
        fresh.rename(template)
    except OSError:
        shutil.rmtree(fresh)
