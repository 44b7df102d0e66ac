"""The models speak of the code that is there, and of the guarantees that the page names."""

from __future__ import annotations

import importlib
import re
from operator import attrgetter

import pytest

from tests.proof.models import FOLDER, Verdict, checks, defects, models
from tests.unit.docs.markdown import page, rows

TEXTS = {name: (FOLDER / f"{name}.tla").read_text("utf-8") for name in models()}
FUNCTIONS = sorted({found for text in TEXTS.values() for found in re.findall(r"does: ([\w.]+:[\w.]+)", text)})
CLAIMS = sorted({found for text in TEXTS.values() for found in re.findall(r"guarantee: (.+)", text)} - {""})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_a_model_names_exists(name: str) -> None:
    module, _, function = name.partition(":")
    assert callable(attrgetter(function)(importlib.import_module(module)))


@pytest.mark.parametrize("claim", [claim for claim in CLAIMS if not claim.startswith("names ")])
def test_a_guarantee_that_a_model_names_is_on_the_page(claim: str) -> None:
    assert any(row[0].startswith(claim) for row in rows(page("docs/guarantees.md")))


@pytest.mark.parametrize("name", models())
def test_every_defect_of_a_model_can_be_switched_on_and_is_looked_for(name: str) -> None:
    switches = set(re.findall(r'Has\("(\w+)"\)', TEXTS[name])) | set(
        re.findall(r'"(\w+)"', "".join(re.findall(r"Defects \\cap \{(.*?)\}", TEXTS[name])))
    )
    assert switches == {check.name for check in defects() if check.model == name}


def test_the_bounds_name_only_what_the_models_have() -> None:
    for check in [*checks("small"), *checks("large"), *defects()]:
        wanted = [*check.invariants, *check.properties]
        assert all(re.search(rf"^{goal} ==", TEXTS[check.model], re.MULTILINE) for goal in wanted), check.title
        assert all(re.search(rf"\b{bound}\b", TEXTS[check.model]) for bound in check.bounds), check.title


def test_a_check_that_saw_too_little_or_found_something_else_is_a_fault() -> None:
    good, bad = next(checks("small")), next(defects())
    assert Verdict(None, True, good.states, 9, "").fault(good) is None
    assert Verdict(None, True, good.states - 1, 9, "").fault(good)
    assert Verdict(None, False, good.states, 9, "").fault(good)
    assert Verdict(good.invariants[0], False, good.states, 9, "").fault(good)
    assert Verdict(bad.violates, False, 9, 9, "").fault(bad) is None
    assert Verdict(None, True, 9, 9, "").fault(bad)
    assert Verdict("Other", False, 9, 9, "").fault(bad)
