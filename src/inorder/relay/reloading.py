"""A relay that goes on with what is changed in its file, and tells how it is.

    file changed, and the same for two looks ──▶ read ──▶ admitted? ──▶ old relay finishes its batch ──▶ new relay
                                                  │ no       │ no
                                                  ▼          ▼
                                           `relay.reload_refused`; the old settings stay

A relay is never changed while it runs. It is stopped as SIGTERM would stop it, which finishes the batch in hand,
settles it and closes the producer, and another one is made from the new settings. So nothing is lost or sent twice that
a restart of the process would not lose or send twice. Its lease is given up in between and may go to another instance.

What if …

| what                                        | then                                                                   |
|---|---|
| the file is read while it is being written  | it is read only after it stayed the same from one look to the next     |
| it has a mistake, or is gone                | refused and logged once; the next change is looked at again            |
| keys changed that only count at the start   | they keep their old values, `relay.restart_needed` names them          |
| the broker does not let the new settings in | refused and tried again, since it may be the broker's turn to change   |
| the new relay cannot be made                | the old settings are gone back to                                      |
| the old relay does not end                  | nothing is published until it has; two never run at once               |
| the old relay ended by an error             | it is raised, as without a change                                      |
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from inorder.kafka.admin import Cluster, check_properties
from inorder.model.errors import AuthenticationError, ConfigurationError, InorderError, UnreachableError
from inorder.observe.endpoint import Endpoint
from inorder.observe.metrics import RelayMetrics, RelayReading
from inorder.relay.service import Relay
from inorder.relay.status import MeasuredRelay, OutboxWatch, relay_reading, trouble_of
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


class Watch:
    """Tells once of each change of a file, after it stayed the same from one look to the next."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known = self._last = signature_of(file)

    def has_changed(self) -> bool:
        """Looks; whether there is a change that was not told yet."""
        found = signature_of(self._file)
        is_settled, self._last = found == self._last, found
        return is_settled and found != self._known

    def told(self) -> None:
        """The change need not be told again."""
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
        self._watch = Watch(file)
        self._relay = make(settings)
        self._before: list[RelayReading] = []
        self._reloads = {"applied": 0, "refused": 0}
        self._said = ""
        self._outbox = OutboxWatch(settings)
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
        """Where health and metrics are told, if anywhere."""
        return self._endpoint.address if self._endpoint else None

    def reading(self) -> RelayReading:
        """How the relay is, with what the relays before it have done."""
        now = relay_reading(self._settings.relay.group, self._relay)
        sums = {
            name: getattr(now, name) + sum(getattr(each, name) for each in self._before)
            for name in ("published", "processed", "exceeded", "terms")
        }
        return replace(now, **sums, reloads=dict(self._reloads), outbox=self._outbox.reading)

    def __enter__(self) -> Self:
        check_admission(self._settings)
        if self._endpoint is not None:
            self._endpoint.start()
            self._outbox.start()
        self._relay.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._relay.stop()
        self._outbox.stop()
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
        """Looks at the file, and goes on with what was changed in it."""
        if not self._watch.has_changed():
            return
        try:
            self._apply(stop)
        except UnreachableError as error:
            self._refuse(error)  # and again at the next look
            return
        except ConfigurationError as error:
            self._refuse(error)
        self._said = ""
        self._watch.told()

    def _apply(self, stop: threading.Event) -> None:
        if signature_of(self._file) is None:
            raise ConfigurationError(f"{self._file} is gone.", hint="Put it back; the old settings stay until then.")
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
        """The old relay ends, the new one begins."""
        log.info("relay.reloading", extra={"keys": list(found.for_the_relay)})
        while not self._relay.stop(STEP_SECONDS):
            if stop.is_set():
                return
        self._relay.wait(0)  # raises what ended it, if it was not we
        try:
            relay = self._make(new)
        except InorderError:
            self._go_on(self._make(self._settings), self._settings)
            raise
        self._go_on(relay, new)
        self._reloads["applied"] += 1
        log.info("relay.reloaded", extra={"keys": list(found.for_the_relay)})

    def _go_on(self, relay: RunRelay, settings: Settings) -> None:
        self._before.append(relay_reading(settings.relay.group, self._relay))
        self._relay, self._settings = relay, settings
        relay.start()

    def _refuse(self, error: InorderError) -> None:
        if str(error) != self._said:
            self._said = str(error)
            self._reloads["refused"] += 1
            log.error("relay.reload_refused: %s", error, extra={"file": str(self._file)})

    def _new_endpoint(self) -> Endpoint | None:
        address = self._settings.health.address
        if address is None:
            return None
        return Endpoint(address, lambda: trouble_of(self.reading()), RelayMetrics(self.reading).text)


def check_admission(settings: Settings) -> None:
    """Raises `AuthenticationError` if the broker refuses the login; one that is away is waited for later."""
    try:
        _knock(settings)
    except AuthenticationError:
        raise
    except UnreachableError as error:
        log.warning("relay.waiting: %s", error, extra={"code": error.code})


def require_admission(settings: Settings, found: Changes) -> None:
    """Raises unless the client takes the new properties and, if there are any, the broker lets us in with them."""
    for properties in _all_properties(settings):
        check_properties(properties)
    if found.of_kafka:
        _knock(settings)


def _knock(settings: Settings) -> None:
    cluster = Cluster(settings.kafka.properties)
    try:
        cluster.info()
    except ConfigurationError as error:
        log.debug("relay.cluster_not_described: %s", error)  # a right that the relay can do without


def _all_properties(settings: Settings) -> Sequence[dict[str, bool | int | float | str]]:
    return [settings.kafka.properties, *(settings.producer_properties(topic) for topic in settings.topics)]
