"""Which instance should try to own a shard: always a hint, never a decision.

The outbox has one or more shards, and one loop of one instance works on each. Instances share the shards evenly; when
one joins or leaves, as few shards as possible move.

| leadership  | who holds a shard                           | who should hold it                                      |
|---|---|---|
| `kafka`     | the owner of the shard's partition, as long | the group's coordinator and the sticky assignment       |
|             | as it is connected: `election.py`           |                                                         |
| `database`, | the owner of the shard's lease              | each instance computes its share from how many are      |
| `redis`     |                                             | alive and its rank among them: `share.py`               |
| `none`      | the only instance                           | the operator: `NoLease` in `lease.py`                   |

A shard moves from one instance to another in four steps: `acquire` returns False to the old loop, the loop stops, it
calls `acquire` again and thereby shows that it has stopped, the lease is released or the partition returned
(`HandOver` in `share.py`). Only then does the next loop begin, unless the old one takes too long.

What is authoritative:

- **Nothing here.** The broker's fence on the shard's `transactional.id` (`relay/drain.py`) decides who publishes. Where
  there is none, with `at-least-once`, two instances that hold a shard at once may publish a row twice.

What is only a hint, and may be late, lost or true of two instances at once:

- **Who is alive.** A member counts for some seconds after its last heartbeat, by the clock of the server.
- **A share.** It is computed from who is alive. While two instances know different members, their shares may overlap,
  so that shards move twice, or leave a shard unclaimed for a heartbeat; a lease still has one holder.
- **A lease.** It expires by the server's clock, whatever its holder believes.

Invariants

1. The shares of instances that know the same members add up to the shards and differ by one at most.
2. An instance tries no shard that would take it above its share, and gives up no shard within it.
3. A join raises no share and a leave lowers none. So a shard that need not move does not.

What if …

| an instance …                    | then                                                                              |
|---|---|
| joins                            | all shares are recomputed within a heartbeat; instances above theirs give up the  |
|                                  | excess, the new instance takes it                                                 |
| stops on request                 | it leaves with its last shard; the rest take over within a heartbeat              |
| is killed                        | its membership and its leases expire (`kafka`: its session), then the rest take   |
|                                  | over                                                                              |
| is paused and wakes up later     | it sends a heartbeat first, finds its leases gone and takes what its share allows |
| has one loop that has failed     | that shard may have no owner until the instance leaves, which should be soon: the |
|                                  | others count it as alive                                                          |
| does not stop after a False      | its lease expires (`kafka`: the partition moves after a while); the fence decides |

| the surroundings …               | then                                                                              |
|---|---|
| more instances than shards       | some have no shard and wait                                                       |
| the members' server stops        | so do the leases on it: all instances stop at their next request, and resume with |
|                                  | the server                                                                        |
"""
