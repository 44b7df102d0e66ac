"""One partition stops, or is replayed, and the others go on."""

from __future__ import annotations

import pytest
from pyspark.sql import Row

from inorder.engines.faults import OnMovedBack, PartitionFaults
from inorder.engines.job_status import JobService
from inorder.engines.progress import CompositeListener, RunTotals
from inorder.engines.slice_task import error_row, split_results
from inorder.model.errors import GuaranteeError, MovedBackError, OtherTopicError, RejectedError, TransientError
from inorder.model.partitioning import Place

HERE: Place = ("orders", 0)
THERE: Place = ("orders", 1)


def at(error: GuaranteeError, place: Place = HERE) -> GuaranteeError:
    error.place = place
    return error


def faults_of(on_moved_back: OnMovedBack) -> tuple[PartitionFaults, JobService]:
    service = JobService(None, "upsert", dict)
    return PartitionFaults("demo", on_moved_back, CompositeListener(RunTotals(), service.listener)), service


def test_a_violated_guarantee_stops_its_partition_and_is_in_the_health_of_the_job() -> None:
    faults, service = faults_of("stop")
    with service:
        assert service.trouble() == ""
        assert faults.absorb(at(MovedBackError("It moved back.")))
        faults.stop_all({HERE: GuaranteeError("It is gone."), THERE: OtherTopicError("It is another.")})
        assert set(faults.stopped) == {HERE, THERE}
        assert service.trouble() == "orders[0] is stopped: It moved back. And 1 more partitions are stopped."


def test_a_pointer_that_moved_back_is_forgotten_where_it_is_to_be_replayed() -> None:
    faults, _ = faults_of("replay")
    faults.expect({HERE: 9, THERE: 4})
    assert faults.absorb(at(MovedBackError("It moved back.")))
    assert (faults.expected(), faults.stopped) == ({THERE: 4}, {})
    faults.expect({HERE: 3})
    assert faults.expected() == {HERE: 3, THERE: 4}
    assert faults.absorb(at(OtherTopicError("It is another.")))
    assert set(faults.stopped) == {HERE}


@pytest.mark.parametrize("error", [RejectedError("r"), TransientError("t"), GuaranteeError("of no partition")])
def test_other_errors_are_not_of_one_partition(error: Exception) -> None:
    faults, _ = faults_of("stop")
    assert not faults.absorb(error)
    assert faults.stopped == {}


def test_an_error_says_its_partition_on_its_way_to_the_driver() -> None:
    rows = [
        Row(**row)
        for error in (at(MovedBackError("m"), THERE), GuaranteeError("g"))
        for row in error_row(error).to_pylist()
    ]
    _, errors = split_results(rows)
    assert [(type(error), error.place) for error in errors if isinstance(error, GuaranteeError)] == [
        (MovedBackError, THERE),
        (GuaranteeError, None),
    ]
