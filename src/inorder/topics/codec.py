"""A topic's state as text: the same in the database and in the mirror."""

from __future__ import annotations

import json
from dataclasses import asdict

from inorder.model.errors import PermanentError
from inorder.ports.topic_generations import Generation, Phase, Target, TopicState


def encode(state: TopicState) -> str:
    """JSON, for people too."""
    return json.dumps(asdict(state))


def decode(text: str | bytes) -> TopicState:
    """The state that was encoded."""
    try:
        found = json.loads(text)
        generations = tuple(_generation(**each) for each in found["generations"])
        target = None if found["target"] is None else Target(**found["target"])
        return TopicState(found["topic"], generations, Phase(found["phase"]), target, found["epoch"])
    except (ValueError, TypeError, KeyError) as error:
        raise PermanentError(
            f"A topic's generations cannot be read: {text!r}.", hint="Was it written by a newer version of inorder?"
        ) from error


def _generation(number: int, topic: str, partitions: int, ends: list[int] | None) -> Generation:
    return Generation(number, topic, partitions, None if ends is None else tuple(ends))
