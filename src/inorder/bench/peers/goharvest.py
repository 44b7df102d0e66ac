"""The peer goharvest: mark, publish, purge one row a statement, at most one record of a key in flight.

Its limits are those that were found best for it by a scan of settings on two cores; its connection commits
asynchronously, since a crash could only make it publish again.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from importlib.resources import as_file, files
from itertools import count
from pathlib import Path

from inorder.bench.contender import Peer, TableReader
from inorder.bench.load import Load
from inorder.bench.options import RelayOptions
from inorder.bench.place import BenchPlace
from inorder.bench.tables import LAYOUTS
from inorder.database.sql import quoted
from inorder.embedded.folders import cache_folder, need_disk
from inorder.embedded.jars import file_lock
from inorder.embedded.stack import Program
from inorder.kafka.admin import ensure_topic
from inorder.model.errors import ConfigurationError, UnreachableError
from inorder.outbox.layouts import install_statements

# Builds the peer goharvest with the Go tool chain, once per user.
#
# goharvest and its election library pin a Kafka client of 2020. Both are taken as they are, at the revisions below,
# with the import paths of a current client put in and nothing else changed. The sums of all the rest are in
# `goharvest_program/go.sum`.

GOHARVEST, GOHARVEST_REVISION = "github.com/obsidiandynamics/goharvest", "1239a594e9dcbb1945120fa2b86caf3021c101bb"
GONELI, GONELI_REVISION = "github.com/obsidiandynamics/goneli", "v0.4.3"
SOURCE_VARIABLE = "GOHARVEST_SOURCE"
BUILD_SECONDS = 1800
_MEGABYTES = 1_500
_LAST_LINES = 8

_OLD_CLIENT = "gopkg.in/confluentinc/confluent-kafka-go.v1/kafka"
_NEW_CLIENT = "github.com/confluentinc/confluent-kafka-go/v2/kafka"
_IMPORTS: Mapping[str, str] = {
    f'"{_OLD_CLIENT}/librdkafka"': f'"{_NEW_CLIENT}/librdkafka_vendor"',
    f'"{_OLD_CLIENT}"': f'"{_NEW_CLIENT}"',
}


def goharvest_program() -> Path:
    """The program, built first when it is not in the cache."""
    parts = files("inorder.bench.peers").joinpath("goharvest_program")
    with as_file(parts) as folder:
        program = cache_folder() / "programs" / f"goharvest-{_digest(folder)}"
        if not program.is_file():
            _build_alone(folder, program)
    return program


def with_new_client(source: str) -> str:
    """Go source with the imports of the Kafka client changed."""
    for old, new in _IMPORTS.items():
        source = source.replace(old, new)
    return source


def _digest(folder: Path) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(folder.iterdir()))).hexdigest()[:12]


def _build_alone(folder: Path, program: Path) -> None:
    go = _find_go()
    need_disk(program.parent, _MEGABYTES, "Building goharvest")
    with file_lock(program.parent / "goharvest.lock"):
        if program.is_file():  # another process built it while we waited
            return
        work = program.with_name("goharvest.partial")
        shutil.rmtree(work, ignore_errors=True)
        work.with_suffix(".log").unlink(missing_ok=True)
        shutil.copytree(folder, work)
        _say("building goharvest … some minutes")
        _adopt(_goharvest_source(go, work), work / "goharvest", GOHARVEST)
        _adopt(_downloaded(go, work, GONELI, GONELI_REVISION), work / "goneli", GONELI)
        _run([go, "build", "-trimpath", "-buildvcs=false", "-o", "program", "."], work)
        (work / "program").rename(program)
        shutil.rmtree(work)


def _find_go() -> str:
    if found := shutil.which("go"):
        return found
    raise UnreachableError(
        "Go was not found on the PATH, and the peer goharvest is built with it.",
        hint="Install Go 1.21 or newer and a C compiler, or choose another --peer.",
    )


def _goharvest_source(go: str, work: Path) -> Path:
    """From the module proxy, or out of a clone that the user has, where no proxy has it."""
    named = os.environ.get(SOURCE_VARIABLE)
    if not named:
        return _downloaded(go, work, GOHARVEST, GOHARVEST_REVISION)
    clone = Path(named).expanduser()
    if not clone.is_dir():
        raise ConfigurationError(
            f"{SOURCE_VARIABLE} names {clone}, which is not a folder.", hint="Correct or unset it."
        )
    archive = _run(["git", "-C", str(clone), "archive", GOHARVEST_REVISION], work)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files_of_it:
        files_of_it.extractall(work / "clone", filter="data")
    return work / "clone"


def _downloaded(go: str, work: Path, module: str, revision: str) -> Path:
    answer = json.loads(_run([go, "mod", "download", "-json", f"{module}@{revision}"], work))
    return Path(answer["Dir"])


def _adopt(source: Path, target: Path, module: str) -> None:
    """Copies the code of a module, less its tests, so that it builds with the client we chose."""
    for path in source.rglob("*.go"):
        if not path.name.endswith("_test.go"):
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(with_new_client(path.read_text("utf-8")), "utf-8")
    (target / "go.mod").write_text(f"module {module}\n\ngo 1.21\n", "utf-8")


def _run(command: Sequence[str], work: Path) -> bytes:
    log_path = work.with_suffix(".log")
    with log_path.open("ab") as log:
        try:
            done = subprocess.run(
                command, cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, timeout=BUILD_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _not_built(f"{command[0]}: {error}", log_path) from error
        log.write(done.stdout[-10_000:] if done.returncode else b"")
    if done.returncode:
        raise _not_built(" ".join(command[:3]), log_path)
    return done.stdout


def _not_built(what: str, log_path: Path) -> UnreachableError:
    said = "\n".join(f"  {line}" for line in log_path.read_text(errors="replace").splitlines()[-_LAST_LINES:])
    return UnreachableError(
        f"The peer goharvest could not be built ({what}). Last log lines:\n{said}\n",
        hint=f"All of them: {log_path}. Where no module proxy has it, name a git clone of it in {SOURCE_VARIABLE}.",
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201  progress belongs on stderr


TABLE = "bench_goharvest"
LEADER_TOPIC = "bench-goharvest-leader"
WINDOW_SECONDS = 10.0
FEW_KEYS = 10
LIMITS = {
    "maxInFlightRecords": 20_000,
    "markQueryRecords": 500,
    "sendConcurrency": 16,
    "sendBuffer": 1_000,
    "markBackoff": "1ms",
}
_starts = count(1)


class Goharvest(TableReader):
    """Each start is a group of its own, so that no election waits for a member that is gone."""

    name = "goharvest"
    window_seconds = WINDOW_SECONDS

    def __init__(self, place: BenchPlace, options: RelayOptions) -> None:
        super().__init__(place, options, LAYOUTS["goharvest"], TABLE)
        ensure_topic(place.kafka, LEADER_TOPIC, 1)

    def empty(self) -> None:
        """Drops the table rather than emptying it: no dead rows of the last trial."""
        self.place.watching.execute(f"DROP TABLE IF EXISTS {quoted(TABLE)}")
        for statement in install_statements("goharvest", "postgresql", TABLE):
            self.place.watching.execute(statement)

    def program(self, load: Load) -> Program:
        """Tuned for the load: with few keys every moment of lingering is lost."""
        number = next(_starts)
        path = self.place.folder / f"goharvest-{number}.yaml"
        # JSON is YAML.
        path.write_text(json.dumps(self._settings(load, number), indent=1), "utf-8")
        return Program("goharvest", [str(goharvest_program()), str(path)], self.place.folder)

    def _settings(self, load: Load, number: int) -> dict[str, object]:
        host, port = self.place.database_address
        return {
            "baseKafkaConfig": self.place.kafka,
            "producerKafkaConfig": {"linger.ms": 0 if load.keys <= FEW_KEYS else 1},
            "leaderTopic": LEADER_TOPIC,
            "leaderGroupID": f"bench-goharvest-{number}",
            "dataSource": (
                f"host={host} port={port} user=postgres password={self.place.database_password} dbname=postgres "
                "sslmode=disable synchronous_commit=off"
            ),
            "outboxTable": TABLE,
            "limits": LIMITS,
        }


PEER = Peer(
    Goharvest,
    set_up=goharvest_program,
    notes=(
        f"goharvest is rated over the first {WINDOW_SECONDS:.0f} s of a drain: with few keys the whole takes minutes.",
        "goharvest delivers at least once, without transactions.",
    ),
)
