"""The data of one server: made whole or not at all, and removed with all that belongs to them.

`initialised` beside the data says that they were made to the end. Without it, whatever lies there is what an
interrupted first start left, and is made anew.

A server that runs as another user than ours (PostgreSQL, when we are root) may be unable to walk to our folder.
Then the data are put up elsewhere and `data` is a link to them: a lodging, which holds the data and the name of
the link. A lodging whose link is gone, because somebody removed the folder by hand, is removed when the next one
is made.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from inorder.embedded.accounts import is_open_to_all
from inorder.embedded.process import Account

LODGINGS = Path("/var/tmp")  # noqa: S108  it survives a reboot, and the names below it are random and private
_PREFIX = "inorder-data-"
_SETTLED_SECONDS = 60


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The data below the folder of a server."""

    server_folder: Path

    @property
    def path(self) -> Path:
        """Where the data really are."""
        return self._door.resolve()

    @property
    def _door(self) -> Path:
        return self.server_folder / "data"

    @property
    def _marker(self) -> Path:
        return self.server_folder / "initialised"

    @property
    def is_initialised(self) -> bool:
        """True when the server may start on them."""
        return self._marker.exists() and self._door.exists()

    def make(self, account: Account | None) -> None:
        """An empty folder of `account`, elsewhere with a link to it when that user could not walk here."""
        if account is None or is_open_to_all(self.server_folder):
            self._door.mkdir(mode=0o700)
        else:
            remove_abandoned_lodgings()
            self._door.symlink_to(_lodging(self._door))
        if account is not None:
            os.chown(self.path, account.uid, account.gid)

    def mark_initialised(self) -> None:
        """From now on the data count."""
        self._marker.touch()

    def discard(self) -> None:
        """Remove the data; the log stays."""
        self._marker.unlink(missing_ok=True)
        data = self.path
        shutil.rmtree(data, ignore_errors=True)
        if self._door.is_symlink():
            self._door.unlink()
            # A link somebody else made may lead anywhere; only a lodging of ours goes with its data.
            if data.parent.name.startswith(_PREFIX) and (data.parent / "door").is_file():
                shutil.rmtree(data.parent, ignore_errors=True)


def _lodging(door: Path) -> Path:
    lodging = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=LODGINGS))
    lodging.chmod(0o711)
    (lodging / "door").write_text(str(door), encoding="utf-8")
    (lodging / "data").mkdir(mode=0o700)
    return lodging / "data"


def remove_abandoned_lodgings() -> None:
    """Remove data of ours to which no link leads any more, but none so young that its link may still come."""
    for door in LODGINGS.glob(f"{_PREFIX}*/door"):
        lodging, facts = door.parent, door.stat()
        if facts.st_uid != os.geteuid() or time.time() - facts.st_mtime < _SETTLED_SECONDS:
            continue
        if Path(door.read_text(encoding="utf-8")).resolve() != (lodging / "data").resolve():
            shutil.rmtree(lodging, ignore_errors=True)
