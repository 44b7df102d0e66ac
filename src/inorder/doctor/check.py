"""One finding of the doctor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from inorder.model.errors import ConfigurationError, InorderError, UnreachableError

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, how it is, and what to do where it is not well."""

    name: str
    status: Status
    detail: str
    hint: str = ""
    unreachable: bool = False


def ok(name: str, detail: str) -> Check:
    """A check that found all well."""
    return Check(name, "ok", detail)


def warn(name: str, detail: str, hint: str) -> Check:
    """A check that found something to know, which stops nothing."""
    return Check(name, "warn", detail, hint)


def fail(name: str, detail: str, hint: str) -> Check:
    """A check that found something that inorder cannot work with."""
    return Check(name, "fail", detail, hint)


def unreachable(name: str, detail: str, hint: str) -> Check:
    """A check that found nobody to ask."""
    return Check(name, "fail", detail, hint, unreachable=True)


def of_error(name: str, error: InorderError) -> Check:
    """An error of inorder as a finding."""
    return Check(name, "fail", error.message, error.hint, isinstance(error, UnreachableError))


def exit_code(checks: Iterable[Check]) -> int:
    """4 where something is unreachable, 3 where something is wrong, else 0."""
    failed = [check for check in checks if check.status == "fail"]
    if any(check.unreachable for check in failed):
        return UnreachableError.exit_code
    return ConfigurationError.exit_code if failed else 0
