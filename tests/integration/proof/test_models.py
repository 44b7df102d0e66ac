"""TLC checks the models of the protocols to the end, and finds every defect that is put into them."""

from __future__ import annotations

import pytest

from tests.proof.models import Check, checks, defects, run

pytestmark = pytest.mark.full


@pytest.mark.parametrize("check", [pytest.param(check, id=check.title) for check in checks("small")])
def test_a_model_of_a_protocol_keeps_its_guarantees(check: Check) -> None:
    assert run(check).fault(check) is None


@pytest.mark.parametrize("check", [pytest.param(check, id=check.title) for check in defects()])
def test_a_defect_of_a_protocol_is_found_in_its_model(check: Check) -> None:
    assert run(check).fault(check) is None
