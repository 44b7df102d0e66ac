"""Options are understood, and what is not known is refused by name."""

from __future__ import annotations

import pytest

from inorder.engines.formats import KnownOptions
from inorder.model.errors import ConfigurationError

KNOWN = KnownOptions(
    "inorder.kafka",
    frozenset({"name", "topic", "whole_partitions"}),
    {"bootstrap.servers": ("kafka", "bootstrap.servers"), "url": ("database", "url")},
    takes_kafka=True,
)


def test_own_options_and_settings_are_told_apart() -> None:
    given = {"config": "a.toml", "topic": "orders", "url": "sqlite://", "bootstrap.servers": "a:1", "kafka.acks": "all"}
    found = KNOWN.read(given)
    assert (found.config, found.get("topic"), found.get("name")) == ("a.toml", "orders", None)
    assert found.overrides == {"database": {"url": "sqlite://"}, "kafka": {"bootstrap.servers": "a:1", "acks": "all"}}


def test_a_property_is_the_same_in_both_spellings() -> None:
    assert (
        KNOWN.read({"kafka.bootstrap.servers": "a:1"}).overrides == KNOWN.read({"bootstrap.servers": "a:1"}).overrides
    )


def test_what_spark_says_besides_is_not_for_us() -> None:
    assert KNOWN.read({"checkpointlocation": "/somewhere"}).overrides == {}


@pytest.mark.parametrize(
    ("name", "meant"), [("tpic", "'topic'"), ("bootstrap.server", "'bootstrap.servers'"), ("configs", "'config'")]
)
def test_an_unknown_option_is_refused_with_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        KNOWN.read({name: "x"})
    assert f"has no option {name!r}; did you mean {meant}?" in refused.value.message
    assert (
        refused.value.hint == "It has bootstrap.servers, config, name, topic, url, whole_partitions and kafka.PROPERTY."
    )


def test_a_kafka_property_is_refused_where_none_is_used() -> None:
    with pytest.raises(ConfigurationError, match=r"has no option 'kafka\.acks'\."):
        KnownOptions("inorder.table").read({"kafka.acks": "all"})


def test_an_option_that_must_be_there_says_why() -> None:
    with pytest.raises(ConfigurationError, match="needs the option 'name': progress is kept under it"):
        KNOWN.read({}).require("name", "progress is kept under it")
    with pytest.raises(ConfigurationError, match="needs the option 'name'"):
        KNOWN.read({"name": ""}).require("name", "x")


@pytest.mark.parametrize(("text", "said"), [("true", True), ("True", True), ("false", False)])
def test_yes_and_no_in_the_spellings_of_python_and_spark(text: str, said: bool) -> None:
    assert KNOWN.read({"whole_partitions": text}).flag("whole_partitions") is said


def test_no_is_what_nobody_says_and_anything_else_is_refused() -> None:
    assert not KNOWN.read({}).flag("whole_partitions")
    with pytest.raises(ConfigurationError, match="is 'maybe'"):
        KNOWN.read({"whole_partitions": "maybe"}).flag("whole_partitions")
