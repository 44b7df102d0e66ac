"""Two jobs `replicate` at once, and one that was paused at any step and resumed later: neither changes the result."""

from __future__ import annotations

import pytest

from tests.fault.halting_replicator import BETWEEN_HEADS, STEPS
from tests.fault.journal_copy import verify, verify_rows
from tests.fault.journal_ordeal import JournalStage, pause_workers
from tests.fault.replicate_stages import ENGINES, EVERY, LONG, SOME, STORES, NewStage

pytestmark = pytest.mark.timeout(1200)


def rivals_share_the_work(stage: JournalStage, engines: tuple[str, str], steps: tuple[str, ...]) -> None:
    paused, _ = [stage.start(engine) for engine in engines]
    stage.wait_for_start()
    with stage.load():
        stage.wait_for_progress(200)
        pause_workers(stage, paused, steps)
    verify(stage)


@pytest.mark.full
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(("after-events", "before-pointer"), id=SOME),
        pytest.param((*STEPS, BETWEEN_HEADS), id=EVERY, marks=LONG),
    ],
)
def test_one_of_two_paused_and_woken_changes_nothing_on_cassandra(new_stage: NewStage, steps: tuple[str, ...]) -> None:
    rivals_share_the_work(new_stage("cassandra"), ("plain", "plain"), steps)


@LONG
def test_one_of_two_woken_within_its_transaction_or_after_changes_nothing_on_postgres(
    new_stage: NewStage, fresh_url: str
) -> None:
    stage = new_stage("postgres")
    # Each pause within a transaction lasts as long as the server's timeout for it.
    rivals_share_the_work(stage, ("plain", "plain"), ("before-pointer", "after-commit"))
    verify_rows(stage, fresh_url)


@LONG
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("engines", [(one, other) for one in ENGINES for other in ENGINES], ids=" and ".join)
def test_the_same_on_spark_at_every_step(new_stage: NewStage, store: str, engines: tuple[str, str]) -> None:
    rivals_share_the_work(new_stage(store), engines, STEPS)
