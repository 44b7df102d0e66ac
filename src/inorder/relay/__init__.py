"""The relay, from the database to Kafka: claim a batch, publish it in order, settle it, repeat while owner.

Read `loop.py` first: it is the loop of one shard. Then, for the default strategy, `drain.py` (the protocol and its
invariants), `term.py` (one term of owning a shard), `scan.py` (what to read next), `marker.py` (what was published),
`purge_queue.py`, and `parking.py` (refused records).

- Other strategies: `mark_purge.py`; `polling.py` with `polling_rules.py` and `breaker.py`; `topic_lock.py` with
  `topic_lock_batch.py`. Each begins with its protocol.
- `leadership/`: which instance should try to own a shard. `reshard.py`: how the number of shards changes.
- `stores/`: the tables of each strategy in each database (`stores/ports.py` says what is promised), leases, and the
  log of a shard.
- `options.py` and `events.py`: what every strategy runs with, and what it reports.
"""
