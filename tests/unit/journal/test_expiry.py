"""When a journal may go, and what an append changes about it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from inorder.journal.action import (
    ExpiryChange,
    KeepExpiry,
    RemoveExpiry,
    SetExpiry,
    apply_expiry_change,
    check_expire_after,
    decide_expiry_change,
    expiry_at,
)
from inorder.journal.stores.ports import Expiry
from inorder.model.errors import ValidationError

TIME = datetime(2019, 12, 11, 10, 10, 10, tzinfo=UTC)
DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
THE_11TH, THE_12TH = date(2019, 12, 11), date(2019, 12, 12)


@pytest.mark.parametrize(
    ("current", "after", "change"),
    [
        (None, None, KeepExpiry()),
        (None, MINUTE, SetExpiry(Expiry(MINUTE, THE_11TH))),
        (None, DAY, SetExpiry(Expiry(DAY, THE_12TH))),
        (Expiry(DAY, THE_11TH), DAY, SetExpiry(Expiry(DAY, THE_12TH))),
        (Expiry(DAY, THE_12TH), DAY, KeepExpiry()),
        (Expiry(DAY, THE_12TH), None, RemoveExpiry()),
    ],
)
def test_only_a_change_is_written(current: Expiry | None, after: timedelta | None, change: ExpiryChange) -> None:
    assert decide_expiry_change(current, after, TIME) == change
    assert apply_expiry_change(current, change) == (None if after is None else expiry_at(TIME, after))


def test_days_are_those_of_utc_wherever_the_record_was_written() -> None:
    evening = datetime(2019, 12, 11, 23, 30, tzinfo=timezone(timedelta(hours=-5)))
    assert expiry_at(evening, MINUTE).on == THE_12TH


@pytest.mark.parametrize("after", [timedelta(0), -DAY, timedelta(days=200_000)])
def test_a_duration_that_cannot_be_is_refused(after: timedelta) -> None:
    with pytest.raises(ValidationError, match="expire_after"):
        check_expire_after(after)
