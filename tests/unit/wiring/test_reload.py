"""A service goes on with what is changed in its file, refuses mistakes, and never runs two relays at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from inorder.model.errors import ConfigurationError, GuaranteeError
from inorder.relay import reloading
from inorder.relay.loop import RelayProgress
from inorder.relay.reloading import FileWatch, RelayService
from inorder.relay.service import RelayState
from inorder.relay.status import trouble_of
from inorder.settings import Settings

FILE = '[relay]\ngroup = "shop"\nbatch_size = {size}\n'


@dataclass
class FakeRelay:
    """A relay that does nothing but note what is done to it."""

    settings: Settings
    history: list[str]
    looks_to_stop: int = 1
    failure: Exception | None = None
    state: RelayState = RelayState.created
    is_leader: bool = True
    in_flight: int = 0
    last_error: str = ""
    counts: RelayProgress = field(default_factory=lambda: RelayProgress(published=10, terms=1))

    @property
    def progress(self) -> Sequence[RelayProgress]:
        return [self.counts]

    @property
    def published(self) -> int:
        return self.counts.published

    def start(self) -> None:
        self.history.append(f"start {self.settings.relay.batch_size}")
        self.state = RelayState.running

    def stop(self, timeout: float | None = None) -> bool:  # noqa: ARG002 - as a relay has it
        self.looks_to_stop -= 1
        if self.looks_to_stop > 0:
            return False
        self.history.append(f"stop {self.settings.relay.batch_size}")
        self.state = RelayState.stopped
        return True

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002 - as a relay has it
        if self.failure is not None:
            raise self.failure
        return self.state is RelayState.stopped


@dataclass
class Workshop:
    """A service on a file, and the relays that it made."""

    file: Path
    history: list[str] = field(default_factory=list)
    made: list[FakeRelay] = field(default_factory=list)
    refuses: int = 0
    """A batch size with which no relay can be made."""
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.write(FILE.format(size=100))
        self.service = RelayService(self.load(), self.file, self.load, make=self._make)
        self.made[0].start()

    def write(self, text: str) -> None:
        replacement = self.file.with_suffix(".new")
        replacement.write_text(text, "utf-8")
        replacement.rename(self.file)

    def load(self) -> Settings:
        return Settings.load(self.file)

    def look(self, times: int = 2) -> None:
        for _ in range(times):
            self.service.look(self.stop)

    def _make(self, settings: Settings) -> FakeRelay:
        if settings.relay.batch_size == self.refuses:
            raise ConfigurationError("no such relay")
        self.made.append(FakeRelay(settings, self.history))
        return self.made[-1]


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path / "inorder.toml")


def said(caplog: pytest.LogCaptureFixture, event: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.getMessage().startswith(event)]


def test_nothing_happens_while_the_file_stays_the_same(workshop: Workshop) -> None:
    workshop.look(5)
    assert workshop.history == ["start 100"]


def test_the_old_relay_has_ended_before_the_new_one_begins(
    workshop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    workshop.made[0].looks_to_stop = 5
    workshop.write(FILE.format(size=200))
    workshop.look()
    assert workshop.history == ["start 100", "stop 100", "start 200"]
    assert said(caplog, "relay.reloaded")[0].__dict__["keys"] == ["relay.batch_size"]
    workshop.look(5)
    assert len(workshop.made) == 2, "it is told once"


def test_a_file_that_is_still_being_written_is_left_alone(workshop: Workshop) -> None:
    for size in range(200, 205):
        workshop.write(FILE.format(size=size))
        workshop.look(1)
    assert workshop.history == ["start 100"]
    workshop.look(1)
    assert workshop.history[-1] == "start 204"


@pytest.mark.parametrize("text", ["[relay", "[relay]\nbach_size = 1\n", '[relay]\nstrategy = "polling"\n'])
def test_a_file_with_a_mistake_is_refused_with_the_reason_and_the_old_settings_stay(
    workshop: Workshop, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    workshop.write(text)
    workshop.look(6)
    assert workshop.history == ["start 100"]
    assert workshop.service.settings.relay.batch_size == 100
    refused = said(caplog, "relay.reload_refused")
    assert len(refused) == 1, "once, not with every look"
    assert "inorder.toml" in refused[0].__dict__["error"] or "relay.layout" in refused[0].__dict__["error"]
    workshop.write(FILE.format(size=300))
    workshop.look()
    assert workshop.history[-1] == "start 300", "the mended file counts"


def test_a_file_that_is_gone_changes_nothing(workshop: Workshop, caplog: pytest.LogCaptureFixture) -> None:
    workshop.file.unlink()
    workshop.look(4)
    assert workshop.history == ["start 100"]
    assert "is missing" in said(caplog, "relay.reload_refused")[0].__dict__["error"]


def test_a_property_that_the_client_does_not_know_is_refused(
    workshop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    workshop.write(FILE.format(size=100) + '[kafka]\n"linger.mss" = 5\n')
    workshop.look()
    assert workshop.history == ["start 100"]
    assert "linger.mss" in said(caplog, "relay.reload_refused")[0].__dict__["error"]


def test_keys_that_need_a_restart_are_named_and_the_rest_counts(
    workshop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    workshop.write('[relay]\ngroup = "other"\nbatch_size = 200\n[health]\nlisten = "13000"\n')
    workshop.look()
    assert said(caplog, "relay.restart_needed")[0].__dict__["keys"] == ["health.listen", "relay.group"]
    assert workshop.made[-1].settings.relay.group == "shop"
    assert workshop.history[-1] == "start 200"


def test_only_keys_that_need_a_restart_disturb_nobody(workshop: Workshop) -> None:
    workshop.write('[relay]\ngroup = "other"\nbatch_size = 100\n')
    workshop.look()
    assert workshop.history == ["start 100"]


def test_if_the_new_relay_cannot_be_made_the_old_settings_go_on(
    workshop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    workshop.refuses = 200
    workshop.write(FILE.format(size=200))
    workshop.look()
    assert workshop.history == ["start 100", "stop 100", "start 100"]
    assert "no such relay" in said(caplog, "relay.reload_refused")[0].__dict__["error"]
    assert workshop.service.reading().reloads == {"applied": 0, "refused": 1}


def test_what_ended_the_old_relay_is_raised_and_no_new_one_is_made(workshop: Workshop) -> None:
    workshop.made[0].failure = GuaranteeError("lost")
    workshop.write(FILE.format(size=200))
    with pytest.raises(GuaranteeError):
        workshop.look()
    assert len(workshop.made) == 1


def test_a_signal_ends_the_wait_for_a_relay_that_does_not_end(workshop: Workshop) -> None:
    workshop.made[0].looks_to_stop = 10**9
    workshop.stop.set()
    workshop.write(FILE.format(size=200))
    workshop.look()
    assert len(workshop.made) == 1


def test_what_was_counted_before_a_change_is_not_forgotten(workshop: Workshop) -> None:
    workshop.write(FILE.format(size=200))
    workshop.look()
    assert workshop.service.published == 20
    assert workshop.service.reading().terms == 2
    assert workshop.service.reading().reloads == {"applied": 1, "refused": 0}


def test_the_outbox_is_measured_with_the_settings_in_force(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(reloading, "_read_outbox", lambda parts: asked.append(parts.relay.batch_size))
    workshop.service._outbox._ask()
    workshop.write(FILE.format(size=200))
    workshop.look()
    workshop.service._outbox._ask()
    assert asked == [100, 200]


def test_running_looks_at_the_file_unless_told_not_to(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path / "inorder.toml")
    workshop.write("[relay]\nreload_on_change = false\n" + FILE.format(size=100).removeprefix("[relay]\n"))
    workshop.look()
    assert workshop.history[-1] == "start 100"
    assert not workshop.service.settings.relay.reload_on_change
    workshop.write(FILE.format(size=300))
    workshop.made[-1].state = RelayState.stopped
    workshop.service.run(workshop.stop)
    assert "start 300" not in workshop.history


def test_running_ends_with_what_ended_the_relay(workshop: Workshop) -> None:
    workshop.made[0].failure = GuaranteeError("lost")
    with pytest.raises(GuaranteeError):
        workshop.service.run(workshop.stop)


def test_health_names_what_hinders_the_relay(workshop: Workshop) -> None:
    assert trouble_of(workshop.service.reading()) == ""
    workshop.made[0].last_error = "Kafka is away."
    assert trouble_of(workshop.service.reading()) == "Kafka is away."
    workshop.made[0].state = RelayState.stopping
    assert trouble_of(workshop.service.reading()) == "The relay does not run."


def test_a_relay_that_waits_for_its_turn_is_well(workshop: Workshop) -> None:
    workshop.made[0].is_leader = False
    assert trouble_of(workshop.service.reading()) == ""


def test_a_watch_notices_a_file_that_was_replaced_by_one_of_the_same_size(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("a", "utf-8")
    watch = FileWatch(file)
    assert not watch.has_changed()
    other = tmp_path / "other"
    other.write_text("b", "utf-8")
    other.rename(file)
    assert [watch.has_changed() for _ in range(3)] == [False, True, True]
    watch.acknowledge()
    assert not watch.has_changed()
