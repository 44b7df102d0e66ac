"""Which peers there are."""

from __future__ import annotations

from collections.abc import Mapping

from inorder.bench.contender import Peer
from inorder.bench.peers import debezium, goharvest, librdkafka

PEERS: Mapping[str, Peer] = {
    "librdkafka": librdkafka.PEER,
    "goharvest": goharvest.PEER,
    "debezium": debezium.PEER,
}
