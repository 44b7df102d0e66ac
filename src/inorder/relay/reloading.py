"""`inorder relay run`: a relay that reloads its file when it changes, and serves its health and metrics.

    file changed, and the same in two looks ──▶ read ──▶ accepted? ──▶ old relay finishes its batch ──▶ new relay
                                                  │ no       │ no
                                                  ▼          ▼
                                           `relay.reload_refused`; the old settings stay

A running relay is never changed. It is stopped as SIGTERM would stop it, which finishes the batch in progress, purges
it and closes the producer; then a new relay starts with the new settings. So a reload loses or repeats nothing that a
restart of the process would not. The lease is released in between and may go to another instance.

What if …

| what                                        | then                                                                   |
|---|---|
| the file is read while it is being written  | it is read only after it stayed the same from one look to the next     |
| it has a mistake, or is missing             | refused and logged once; the next change is tried                      |
| keys changed that only count at the start   | they keep their old values, `relay.restart_needed` names them          |
| authentication with the new settings fails  | refused and tried again, since the broker may change after the file    |
| the new relay cannot be created             | a relay with the old settings starts again                             |
| the old relay does not end                  | nothing is published until it has; two never run at once               |
| the old relay ended by an error             | the error is raised, as without a change                               |
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from inorder.kafka.admin import Cluster, check_properties
from inorder.model.errors import AuthenticationError, ConfigurationError, InorderError, UnreachableError
from inorder.observe.endpoint import Endpoint, PeriodicReader, ServerChecks
from inorder.observe.metrics import OutboxReading, RelayMetrics, RelayReading
from inorder.relay.parts import RelayParts
from inorder.relay.service import Relay
from inorder.relay.status import MeasuredRelay, open_admin, relay_reading, trouble_of
from inorder.settings import Settings
from inorder.settings.root import Changes, compare, find_conflicts, keep_fixed

log = logging.getLogger("inorder.relay")

LOOK_SECONDS = 1.0
STEP_SECONDS = 0.2
"""How soon a relay that ended by itself, or a signal, is noticed."""


class RunRelay(MeasuredRelay, Protocol):
    """What is run."""

    @property
    def published(self) -> int: ...

    def start(self) -> None: ...

    def stop(self, timeout: float | None = None) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool: ...


Signature = tuple[int, int, int]


def signature_of(file: Path) -> Signature | None:
    """What changes whenever a file is written or replaced; None where there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class FileWatch:
    """Reports each change of a file until it is acknowledged, once it stayed the same from one look to the next."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known = self._last = signature_of(file)

    def has_changed(self) -> bool:
        """Looks at the file; whether there is a change that was not acknowledged yet."""
        found = signature_of(self._file)
        is_settled, self._last = found == self._last, found
        return is_settled and found != self._known

    def acknowledge(self) -> None:
        """The change need not be reported again."""
        self._known = self._last


class RelayService:
    """Runs the relay of a file until it is stopped: `inorder relay run`."""

    def __init__(
        self,
        settings: Settings,
        file: Path,
        load: Callable[[], Settings],
        *,
        make: Callable[[Settings], RunRelay] = Relay,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """`load` reads the settings again; it raises `ConfigurationError` for what is wrong with them."""
        self._settings = settings
        self._file = file
        self._load = load
        self._make = make
        self._look_seconds = look_seconds
        self._watch = FileWatch(file)
        self._relay = make(settings)
        self._before: list[RelayReading] = []
        self._reloads = {"applied": 0, "refused": 0}
        self._last_refusal = ""
        self._outbox = PeriodicReader("outbox", lambda: _read_outbox(RelayParts(self._settings)))
        self._checks = ServerChecks({"database": lambda: _ask_database(self._settings), "kafka": self._ask_kafka})
        self._asked: tuple[object, Cluster] | None = None
        self._endpoint = self._new_endpoint()

    @property
    def settings(self) -> Settings:
        """What is in force at the moment."""
        return self._settings

    @property
    def published(self) -> int:
        """How many records were published since the start."""
        return self.reading().published

    @property
    def in_flight(self) -> int:
        """How many rows are on their way to the broker at the moment."""
        return self._relay.in_flight

    @property
    def address(self) -> tuple[str, int] | None:
        """Where health and metrics are served, if anywhere."""
        return self._endpoint.address if self._endpoint else None

    def reading(self) -> RelayReading:
        """How the relay is, with the counts of the relays before it."""
        now = relay_reading(self._settings.relay.group, self._relay)
        sums = {
            name: getattr(now, name) + sum(getattr(each, name) for each in self._before)
            for name in ("published", "processed", "exceeded", "terms")
        }
        age, outbox = self._outbox.last or (0.0, None)
        outbox = outbox and replace(outbox, age_seconds=age)
        return replace(now, **sums, reloads=dict(self._reloads), outbox=outbox)

    def __enter__(self) -> Self:
        check_admission(self._settings)
        if self._settings.observe.traces:
            from inorder.observe.tracing import provide

            provide("inorder-relay")
        if self._endpoint is not None:
            self._endpoint.start()
            self._outbox.start()
            self._checks.start()
        self._relay.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._relay.stop()
        self._outbox.stop()
        self._checks.stop()
        if self._endpoint is not None:
            self._endpoint.stop()

    def run(self, stop: threading.Event) -> None:
        """Returns after `stop` is set; raises what ended the relay."""
        looks_after = 0.0
        while not stop.is_set() and not self._relay.wait(STEP_SECONDS):
            looks_after += STEP_SECONDS
            if looks_after >= self._look_seconds and self._settings.relay.reload_on_change:
                looks_after = 0.0
                self.look(stop)

    def look(self, stop: threading.Event) -> None:
        """Looks at the file, and applies what changed in it."""
        if not self._watch.has_changed():
            return
        try:
            self._apply(stop)
        except UnreachableError as error:
            self._refuse(error)  # and again at the next look
            return
        except ConfigurationError as error:
            self._refuse(error)
        self._last_refusal = ""
        self._watch.acknowledge()

    def _apply(self, stop: threading.Event) -> None:
        if signature_of(self._file) is None:
            raise ConfigurationError(
                f"{self._file} is missing.", hint="Restore it; the old settings stay in force until then."
            )
        new = self._load()
        found = compare(self._settings, new)
        new = keep_fixed(self._settings, new)
        if against := find_conflicts(new):
            raise ConfigurationError("\n".join(against), hint="Start the relay again to use all of the file.")
        if found.for_a_restart:
            log.warning("relay.restart_needed", extra={"keys": list(found.for_a_restart)})
        if found.for_the_relay:
            require_admission(new, found)
            self._replace(new, found, stop)
        else:
            self._settings = new

    def _replace(self, new: Settings, found: Changes, stop: threading.Event) -> None:
        """Stops the old relay and starts the new one."""
        log.info("relay.reloading", extra={"keys": list(found.for_the_relay)})
        while not self._relay.stop(STEP_SECONDS):
            if stop.is_set():
                return
        self._relay.wait(0)  # raises the error that ended it, if any
        try:
            relay = self._make(new)
        except InorderError:
            self._start(self._make(self._settings), self._settings)
            raise
        self._start(relay, new)
        self._reloads["applied"] += 1
        log.info("relay.reloaded", extra={"keys": list(found.for_the_relay)})

    def _start(self, relay: RunRelay, settings: Settings) -> None:
        self._before.append(relay_reading(settings.relay.group, self._relay))
        self._relay, self._settings = relay, settings
        relay.start()

    def _refuse(self, error: InorderError) -> None:
        if str(error) != self._last_refusal:
            self._last_refusal = str(error)
            self._reloads["refused"] += 1
            log.error("relay.reload_refused", extra={"file": str(self._file), "error": str(error)})

    def _new_endpoint(self) -> Endpoint | None:
        address = self._settings.health.address
        if address is None:
            return None
        return Endpoint(address, self._trouble, RelayMetrics(self.reading).text, self._checks.troubles)

    def _ask_kafka(self) -> None:
        """On one client as long as the properties stay the same."""
        properties = self._settings.kafka.properties
        if self._asked is None or self._asked[0] != properties:
            self._asked = properties, Cluster(properties)
        _describe(self._asked[1])

    def _trouble(self) -> str:
        """Why the relay does not work, or could not if it led: an instance that waits may have lost its login."""
        return trouble_of(self.reading()) or self._outbox.refusal


def check_admission(settings: Settings) -> None:
    """Raises `AuthenticationError` if a server refuses the login; one that does not answer is waited for later.

    An instance that does not lead would not connect to the database, so a wrong password would be seen too late.
    """
    for ask in (_ask_database, _describe_cluster):
        try:
            ask(settings)
        except AuthenticationError:
            raise
        except UnreachableError as error:
            log.warning("relay.waiting", extra={"code": error.code, "error": str(error)})


def _ask_database(settings: Settings) -> None:
    with closing(RelayParts(settings).open_database("inorder relay (login)")) as database:
        database.execute("SELECT 1")


def require_admission(settings: Settings, found: Changes) -> None:
    """Raises unless the client accepts the new properties and, where they changed, the broker admits us with them."""
    for properties in _all_properties(settings):
        check_properties(properties)
    if found.of_kafka:
        _describe_cluster(settings)


def _read_outbox(parts: RelayParts) -> OutboxReading:
    with open_admin(parts) as admin:
        return admin.outbox_reading()


def _describe_cluster(settings: Settings) -> None:
    _describe(Cluster(settings.kafka.properties))


def _describe(cluster: Cluster) -> None:
    try:
        cluster.info()
    except ConfigurationError as error:
        log.debug("relay.cluster_not_described", extra={"error": str(error)})  # a right that the relay can do without


def _all_properties(settings: Settings) -> Sequence[dict[str, bool | int | float | str]]:
    return [settings.kafka.properties, *(settings.producer_properties(topic) for topic in settings.topics)]
