"""Services that commands ask the app for, replaced for a test."""

from __future__ import annotations

from typing import Any

import pytest

from inorder.app import App
from inorder.operate.actions import Logged


def provide(monkeypatch: pytest.MonkeyPatch, **services: Any) -> None:
    """Sets attributes of every app: an object replaces a service, a function is called with the app first."""
    for name, service in services.items():
        assert hasattr(App, name), name
        monkeypatch.setattr(App, name, service)


class NoLog:
    """A log of actions that keeps nothing."""

    def record(self, _action: str, _target: Any, _reason: str, act: Any, *_describe: Any) -> Logged[Any]:
        return Logged("", act())
