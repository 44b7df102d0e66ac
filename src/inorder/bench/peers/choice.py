"""Which peers there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from inorder.bench.contender import Peer
from inorder.bench.peers import debezium, debezium_jdbc, goharvest, plain
from inorder.bench.pipeline import PeerSide
from inorder.embedded.jars import fetch_set

PEERS: Mapping[str, Peer] = {
    "librdkafka": plain.PEER,
    "goharvest": goharvest.PEER,
    "debezium": debezium.PEER,
}


@dataclass(frozen=True, slots=True)
class PipelineContender:
    """Whom the pipeline is measured against, and what must be there first."""

    measure: PeerSide
    set_up: Callable[[], object] = lambda: None


PIPELINE_PEERS: Mapping[str, PipelineContender] = {
    plain.NAME: PipelineContender(plain.measure),
    debezium_jdbc.NAME: PipelineContender(debezium_jdbc.measure, lambda: fetch_set(debezium_jdbc.jars())),
}
