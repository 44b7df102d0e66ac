"""Puts deliberate defects into the protocols, one at a time, and runs the tests that must notice: `make mutants`.

Each mutant is a small change of one file: the exact text, what replaces it, and why that is wrong. It is applied to a
copy of the sources; `python -m tests.proof.mutants [NAME …]` prints which test caught each, and the share caught.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tests.proof.results import read, record, today

ROOT = Path(__file__).parents[2]
SECONDS = 200


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    file: str
    """Below `src/inorder`."""
    old: str
    new: str
    why: str

    @property
    def path(self) -> str:
        return f"src/inorder/{self.file}"


MARKER, TERM, PURGE, DRAIN = "relay/marker.py", "relay/term.py", "relay/purge_queue.py", "relay/drain.py"
SCAN, PARKING, LOOP = "relay/scan.py", "relay/parking.py", "relay/loop.py"
LOG, PRODUCER = "relay/stores/kafka_log.py", "kafka/fenced_producer.py"
WORK, SLICE, GATE = "engines/slice_work.py", "pipeline/slice.py", "topics/gate.py"
LIFE, READER, HEAD = "journal/life.py", "journal/reading/reader.py", "journal/reading/head.py"


def _units(room: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/unit/{room}/test_{name}.py" for name in names)


SIMULATION = "tests/unit/proof/test_simulation.py::test_"
SEEDS = f"{SIMULATION}every_effect_may_fail_be_late_be_repeated_or_be_the_last"
RELAYS = (
    f"{SIMULATION}a_relay_may_die_on_either_side_of_every_effect",
    f"{SEEDS}[relay-0]",
    f"{SIMULATION}seeds_that_show_a_mutant",
)
DRIVERS = (f"{SIMULATION}a_driver_may_die_on_either_side_of_every_effect", f"{SEEDS}[slice-0]")
SLICES = (*_units("pipeline", "slice", "settle_commit", "isolation"), *_units("topics", "gate"))

TESTS: Mapping[str, tuple[str, ...]] = {
    MARKER: _units("relay", "marker", "identity"),
    TERM: (*RELAYS, *_units("relay", "released_keys", "refused_records")),
    PURGE: (*_units("relay", "purge_queue", "marker"), *RELAYS),
    DRAIN: (*_units("relay", "scan"), *RELAYS),
    SCAN: (*_units("relay", "scan"), *RELAYS),
    PARKING: _units("relay", "parking", "released_keys", "waiting_topics"),
    LOOP: (*_units("relay", "fencing"), "tests/unit/relay/test_simulation.py"),
    LOG: (*RELAYS, *_units("relay", "fencing")),
    PRODUCER: (*RELAYS, "tests/unit/kafka"),
    WORK: (*DRIVERS, *SLICES),
    SLICE: (*DRIVERS, *SLICES),
    GATE: (*DRIVERS, *SLICES),
    LIFE: _units("journal", "forks", "reader", "head", "repeating", "model"),
    READER: _units("journal", "reader", "model"),
    HEAD: _units("journal", "head", "reader", "model"),
}
"""By file, the tests of `make test` that must catch its mutants, the quickest first."""

MUTANTS = (
    Mutant(
        "marker-ignores-content",
        MARKER,
        "(ours if proofs.get(row.id) == proof else others)",
        "(ours if row.id in proofs else others)",
        "a row that got the id of a published one is purged unsent",
    ),
    Mutant(
        "marker-of-another-outbox",
        MARKER,
        "if is_foreign and not self._is_restored:",
        "if is_foreign and self._is_restored:",
        "ids of another table are purged",
    ),
    Mutant(
        "marker-of-a-later-release",
        MARKER,
        "if version > VERSION:",
        "if version > VERSION + 1:",
        "a marker that this release cannot read is obeyed",
    ),
    Mutant(
        "marker-without-proof-of-topic",
        MARKER,
        "sums = map(_topic_sums.__getitem__, map(_TOPIC, rows))",
        "sums = map(lambda _: 0, map(_TOPIC, rows))",
        "rows of two topics pass for one another",
    ),
    Mutant(
        "marker-too-large",
        MARKER,
        "if size > most_bytes:",
        "if size > most_bytes + 1_000:",
        "the broker refuses the marker",
    ),
    Mutant(
        "lost-rows-are-not-named",
        MARKER,
        "if not replaced and not is_elsewhere(marker, origin):",
        "if not replaced:",
        "rows that another server lacks are not reported",
    ),
    Mutant(
        "floor-of-another-server",
        MARKER,
        "return 0 if went_back or replaced or is_elsewhere(marker, origin) else marker.floor",
        "return marker.floor",
        "rows above the floor of a server that is gone are read before those that get its ids again",
    ),
    Mutant(
        "marker-forgets",
        TERM,
        "name_rows([*self._purge_queue.unpurged(), *batches], state)",
        "name_rows([*batches], state)",
        "the next owner publishes again what was not purged",
    ),
    Mutant(
        "take-over-without-purge",
        TERM,
        "found = self._claims.begin(marker)",
        "found = self._claims.begin(replace(marker, published=(), proofs=()))",
        "a new owner publishes what the last one published",
    ),
    Mutant(
        "purge-before-commit",
        TERM,
        "        self._in_flight = batch.rows\n        try:",
        "        self._in_flight = batch.rows\n        self._settle(published)\n        try:",
        "rows of a transaction that fails are gone",
    ),
    Mutant(
        "row-read-twice",
        TERM,
        "rows=[row for row in batch.rows if row.id not in again]",
        "rows=list(batch.rows)",
        "a row that was put back is in two batches",
    ),
    Mutant(
        "exceeded-without-decision",
        TERM,
        "        require_delivered(self._shard.publish((), self._encode(decided)))\n        self._carry_out(exceeding)",
        "        self._carry_out(exceeding)",
        "an owner that was fenced moves a row",
    ),
    Mutant(
        "decision-about-another-row",
        TERM,
        "if marker.exceeding is not None and found.exceeds:",
        "if marker.exceeding is not None:",
        "a row that got the id of the exceeded one is moved",
    ),
    Mutant(
        "decision-is-repeated",
        TERM,
        "        self._exceeded.exceed(exceeding)\n"
        "        require_delivered(self._shard.publish((), self._encode(self._state)))",
        "        self._exceeded.exceed(exceeding)",
        "the next owner moves a row again that an operator has put back",
    ),
    Mutant(
        "purge-by-id-on-another-session",
        PURGE,
        "if session is not None and store.session() == session:\n        return store.purge(ids, session)",
        "if session is not None:\n        return store.purge(ids)",
        "after a failover a row with an old id is purged unsent",
    ),
    Mutant(
        "purge-of-others",
        PURGE,
        "purged += store.purge(ours, session)",
        "purged += store.purge([*ours, *others], session)",
        "rows that only have the ids are purged unsent",
    ),
    Mutant(
        "reads-from-another-server",
        PURGE,
        "if len({found.origin.server, reads.server, store.origin().server} - {None}) > 1:",
        "if store.origin() is None:",
        "a server that lacks the purge of the take-over shows published rows again",
    ),
    Mutant(
        "purging-session-is-not-asked-again",
        PURGE,
        "{found.origin.server, reads.server, store.origin().server}",
        "{found.origin.server, reads.server}",
        "a server that was restarted without the purge of the take-over shows published rows again",
    ),
    Mutant(
        "failed-purge-counts",
        PURGE,
        "                if self._pause():\n                    return\n",
        "                self._purged(batches, ids)\n",
        "the marker forgets rows that are still in the table",
    ),
    Mutant(
        "purge-queue-forgets-the-oldest",
        PURGE,
        "return tuple(self._published)",
        "return tuple(self._published)[1:]",
        "a marker lacks rows that are not purged",
    ),
    Mutant(
        "purges-are-not-awaited",
        PURGE,
        "return len(self._published) < batches and self._rows < rows and self._bytes < MOST_BYTES",
        "return len(self._published) < batches",
        "a marker grows beyond what a record may have",
    ),
    Mutant(
        "rows-in-hand-are-fresh",
        DRAIN,
        "held = in_hand() if scan.walk else frozenset()",
        "held = frozenset[int]()",
        "a sweep publishes again what is not purged yet",
    ),
    Mutant(
        "no-sweep",
        DRAIN,
        "sweeps = self._sweeps.are_due(is_idle=self._is_idle)",
        "sweeps = False",
        "rows below the floor are never found",
    ),
    Mutant(
        "missing-ids-are-forgotten",
        SCAN,
        "    return tuple(id for id in chain(known, range(base + 1, last + 1)) if id not in present)",
        "    return tuple(id for id in range(base + 1, last + 1) if id not in present)",
        "a row that commits late is passed over",
    ),
    Mutant(
        "floor-passes-open-transactions",
        SCAN,
        "    if horizon.watch is None and holders:\n",
        "    if horizon.watch is None and not holders:\n",
        "ids count as rolled back while their transaction is open",
    ),
    Mutant(
        "holders-are-not-awaited",
        SCAN,
        "if horizon.watch.holders & holders:",
        "if horizon.watch.holders == holders:",
        "ids count as rolled back while one of their transactions is open",
    ),
    Mutant(
        "ids-that-began-again",
        SCAN,
        "        return Horizon()  # ids began again",
        "        return horizon  # ids began again",
        "after a database went back new rows are not found",
    ),
    Mutant(
        "row-overtakes-its-key",
        PARKING,
        "return [row for row in rows if not self._waits(row)]",
        "return [row for row in rows if row.topic in ('',) or not self._held.get((row.topic,))]",
        "later rows pass one that was refused",
    ),
    Mutant(
        "waiting-row-is-lost",
        PARKING,
        "            held.ids.update(waiting.ids[place:])\n",
        "            held.ids.update(waiting.ids[place + 1:])\n",
        "a row that waits again is forgotten",
    ),
    Mutant(
        "parked-key-is-released-by-time",
        PARKING,
        "            held.retry_at = None\n        else:",
        "            held.retry_at = now\n        else:",
        "rows behind an exceeded one pass it",
    ),
    Mutant(
        "key-passes-its-topic",
        PARKING,
        "if topic is not None and topic is not self._held[order]:",
        "if topic is None and order in ():",
        "a released key overtakes rows that wait with their topic",
    ),
    Mutant(
        "rejected-row-is-sent-again",
        LOOP,
        "return [row for row in rows if row.id not in delivered]",
        "return rows",
        "rows that arrived are sent again",
    ),
    Mutant(
        "marker-read-before-the-fence",
        LOG,
        "        producers = tuple(FencedProducer(self._properties, each, overrides=packing) for each in ids)\n"
        "        require_settled(self._properties, self._marker_topic, self._shard)\n"
        "        last = read_last_marker(self._properties, self._marker_topic, self._shard)\n",
        "        last = read_last_marker(self._properties, self._marker_topic, self._shard)\n"
        "        producers = tuple(FencedProducer(self._properties, each, overrides=packing) for each in ids)\n"
        "        require_settled(self._properties, self._marker_topic, self._shard)\n",
        "what the last owner commits in between is published again",
    ),
    Mutant(
        "renewal-without-check",
        LOG,
        "if found.batch == self._last_batch:",
        "if found is not None:",
        "an owner continues although another one has committed since",
    ),
    Mutant(
        "no-marker",
        LOG,
        "            self._send_marker(producer, marker, name)\n        except KafkaException",
        "        except KafkaException",
        "the next owner does not know what was published",
    ),
    Mutant(
        "failed-batch-counts",
        LOG,
        "            return Incomplete(error)\n        self._failures = 0",
        "            pass\n        self._failures = 0",
        "rows that were not published are purged",
    ),
    Mutant(
        "late-answer-is-no-matter",
        PRODUCER,
        "self.is_spent = was_spent or took >= seconds",
        "self.is_spent = was_spent",
        "a late request ends the next transaction",
    ),
    Mutant(
        "patient-for-answers",
        PRODUCER,
        "UNJITTERED_SHARE = 0.75",
        "UNJITTERED_SHARE = 1.75",
        "an answer counts as prompt although the request was repeated",
    ),
    Mutant(
        "abort-is-not-measured",
        PRODUCER,
        "        with self._answered_within(self._backoff.end_seconds):\n"
        "            self.client.abort_transaction(self._timeouts.abort)",
        "        self.client.abort_transaction(self._timeouts.abort)",
        "a late abort ends the next transaction",
    ),
    Mutant(
        "commit-is-not-measured",
        PRODUCER,
        "        with self._answered_within(self._backoff.end_seconds):\n            self._end(deadline)",
        "        self._end(deadline)",
        "a late commit ends the next transaction",
    ),
    Mutant(
        "spent-producer-begins",
        LOG,
        "self._must_renew |= self._producers[self._turn].is_spent",
        "self._producers[self._turn].is_spent = False",
        "an epoch is used again while a request is on its way",
    ),
    Mutant(
        "pointer-is-ignored",
        WORK,
        "return Apply(max(pointer, batch.offsets[0]))",
        "return Apply(batch.offsets[0])",
        "what is applied is applied again",
    ),
    Mutant(
        "pointer-may-move-back",
        WORK,
        "    if pointer < expected:\n        return MovedBack()",
        "    if pointer < 0:\n        return MovedBack()",
        "a database that went back is not noticed",
    ),
    Mutant(
        "one-record-too-few-is-skipped",
        WORK,
        "batch.next_offset <= pointer:",
        "batch.next_offset <= pointer + 1:",
        "the last record is never applied",
    ),
    Mutant(
        "end-is-ignored",
        WORK,
        "count = len(batch) if end is None else bisect_left(batch.offsets, end)",
        "count = len(batch)",
        "records behind the end of a generation are applied",
    ),
    Mutant(
        "any-topic-of-the-name",
        WORK,
        "batch.topic_id is not None and topic_id is not None and batch.topic_id != topic_id",
        "batch.topic_id is None and topic_id is not None and batch.topic_id != topic_id",
        "records of a topic that was created again are applied",
    ),
    Mutant(
        "lost-answer-counts-as-commit",
        WORK,
        "            failure = error\n            if result is not None:",
        "            failure = error\n            if result is not None:\n                return result",
        "a slice that was rolled back is reported as applied",
    ),
    Mutant(
        "order-is-not-checked",
        WORK,
        "        if after <= before:",
        "        if after < 0:",
        "a shuffled slice is applied",
    ),
    Mutant(
        "pointer-passes-the-end",
        SLICE,
        "transaction.move_pointer(batch.next_offset, counters, batch.leader_epoch)",
        "transaction.move_pointer(self.batch.next_offset, counters, batch.leader_epoch)",
        "the pointer passes the end of a generation",
    ),
    Mutant(
        "topic-is-not-compared",
        SLICE,
        "        check_topic(self.batch, pointer.topic_id)\n",
        "",
        "records of a topic that was created again are applied",
    ),
    Mutant(
        "letters-are-dropped",
        SLICE,
        "            transaction.bury(letters)\n",
        "",
        "invalid records leave no trace",
    ),
    Mutant(
        "one-partition-is-enough",
        GATE,
        "return all(pointers.get(partition, 0) >= end for",
        "return any(pointers.get(partition, 0) >= end for",
        "the next generation is applied too early",
    ),
    Mutant(
        "gate-opens-one-early",
        GATE,
        "pointers.get(partition, 0) >= end for",
        "pointers.get(partition, 0) >= end - 1 for",
        "the next generation is applied before the last record",
    ),
    Mutant(
        "no-gate",
        GATE,
        "for generation in state.generations[:-1]:",
        "for generation in state.generations[:0]:",
        "the last generation is applied at once",
    ),
    Mutant(
        "version-of-a-reset-pipeline",
        GATE,
        "return max([generation.number, *(number + 1 for number in earlier)])",
        "return generation.number",
        "rows of the next generation count as older",
    ),
    Mutant(
        "bound-is-not-applied",
        GATE,
        "return self._worker.apply(before_end(batch, end), expected)",
        "return self._worker.apply(batch, expected)",
        "records behind the end are applied by works without pointer rows",
    ),
    Mutant(
        "last-writer-wins",
        LIFE,
        "first_that_counts > life.end",
        "first_that_counts >= life.end",
        "a second writer replaces an event",
    ),
    Mutant(
        "number-of-a-condition",
        LIFE,
        "condition.seq_nr is not None and condition.seq_nr != (0 if life is None else life.seq_nr)",
        "condition.seq_nr is not None and condition.seq_nr > (0 if life is None else life.seq_nr)",
        "a decision on an old state counts",
    ),
    Mutant(
        "life-of-a-condition",
        LIFE,
        "return condition.life is None or named is None or named == condition.life",
        "return True",
        "an action of one life changes another",
    ),
    Mutant(
        "purge-is-forgotten",
        HEAD,
        "ReadPlan(None, None, 0, None, offset))",
        "replace(plan, life=None, purged_at=offset))",
        "old events show in place of new ones",
    ),
    Mutant(
        "no-second-look",
        READER,
        "after.record_id == before.record_id and after.seq_nr >= before.seq_nr",
        "after.seq_nr >= 0",
        "a read mixes two lives",
    ),
    Mutant(
        "purged-while-read",
        READER,
        "            if moved <= first:\n                return None, first",
        "            if moved <= window.last + 1:\n                return None, first",
        "an append that never counted shows",
    ),
    Mutant(
        "cache-hides-missing-actions",
        HEAD,
        "    if info.lacks > applied:\n        return None",
        "    if info.lacks > applied + 1_000_000:\n        return None",
        "actions that the cache dropped are not read",
    ),
)


@dataclass(frozen=True, slots=True)
class Fate:
    mutant: Mutant
    caught_by: str | None
    """The first test that failed; None if all passed, or if they did not run to a verdict."""
    ending: str = ""
    """How the tests ended otherwise."""


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the sources; compiled files stay in it from one mutant to the next."""
    with tempfile.TemporaryDirectory(prefix="inorder-mutant-") as name:
        folder = Path(name)
        for part in ("src", "tests", "docs", "models"):
            shutil.copytree(ROOT / part, folder / part)
        for file in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / file, folder / file)
        yield folder


def judge(mutant: Mutant, folder: Path) -> Fate:
    """Applies a mutant to a copy of the sources and runs its tests until one fails."""
    path, text = folder / mutant.path, (ROOT / mutant.path).read_text("utf-8")
    try:
        _replace(path, text.replace(mutant.old, mutant.new))
        return Fate(mutant, *_run(folder, TESTS[mutant.file]))
    finally:
        _replace(path, text)


def _replace(path: Path, text: str) -> None:
    """Writes a file so that Python compiles it again: it compares the time in seconds, and the size."""
    after = path.stat().st_mtime + 10
    path.write_text(text, "utf-8")
    os.utime(path, (after, after))


def _run(folder: Path, tests: Sequence[str]) -> tuple[str | None, str]:
    """The first test that failed, and how the run ended if not with tests that passed or failed."""
    options = ["-x", "-q", "-m", "not full", "--hypothesis-profile=fast", "-p", "no:randomly"]
    environment = os.environ | {"PYTHONPATH": f"{folder / 'src'}{os.pathsep}{folder}"}
    command = [sys.executable, "-m", "pytest", *options, *tests]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return None, "the time limit"
    return verdict(done.returncode, done.stdout)


def verdict(status: int, output: str) -> tuple[str | None, str]:
    """Only a test that ran and failed catches a mutant: a file that cannot be imported is no verdict."""
    failed = re.search(r"^FAILED (\S+)", output, re.MULTILINE)
    if status == 1 and failed:
        return failed[1], ""
    return None, "" if status == 0 else f"exit {status}"


def require_passing(mutants: Sequence[Mutant]) -> None:
    """The tests must pass without a mutant, or their failures say nothing."""
    with copied() as folder:
        for tests in dict.fromkeys(TESTS[mutant.file] for mutant in mutants):
            if (ended := _run(folder, tests)) != (None, ""):
                sys.exit(f"Without a mutant these tests do not pass, {ended}: {' '.join(tests)}")


def judge_all(mutants: Sequence[Mutant]) -> Iterator[Fate]:
    """The fates of mutants, two at a time, each in a copy of its own."""
    with copied() as one, copied() as two, ThreadPoolExecutor(2) as pool:
        folders = SimpleQueue[Path]()
        folders.put(one)
        folders.put(two)

        def run(mutant: Mutant) -> Fate:
            folder = folders.get()
            try:
                return judge(mutant, folder)
            finally:
                folders.put(folder)

        for done in as_completed([pool.submit(run, mutant) for mutant in mutants]):
            yield done.result()


def main(arguments: Sequence[str]) -> int:
    """Runs all mutants, or those that are named; 1 if one survives."""
    chosen = [mutant for mutant in MUTANTS if not arguments or mutant.name in arguments]
    require_passing(chosen)
    fates = list[Fate]()
    for fate in judge_all(chosen):
        fates.append(fate)
        print(f"{fate.mutant.name}: {fate.caught_by or f'SURVIVES {fate.ending}'}", flush=True)  # noqa: T201
    caught = sum(fate.caught_by is not None for fate in fates)
    print(f"{caught} of {len(fates)} caught")  # noqa: T201
    record("mutants", merge(read().get("mutants", {}).get("mutants", ()), fates, today()))
    return int(caught < len(fates))


def merge(known: Sequence[Mapping[str, Any]], fates: Sequence[Fate], date: str) -> dict[str, Any]:
    """What is known of all mutants, each with the date of its run; as a whole it is as old as the oldest."""
    found = {one["name"]: one for one in known}
    for fate in fates:
        mutant = fate.mutant
        entry = {"name": mutant.name, "file": mutant.path, "why": mutant.why, "caught_by": fate.caught_by}
        found[mutant.name] = {**entry, "date": date}
    every = [found[mutant.name] for mutant in MUTANTS if mutant.name in found]
    return {"date": min((one["date"] for one in every), default=date), "mutants": every}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
