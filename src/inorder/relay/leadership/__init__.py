"""Who should try to own a shard: decides from what it is told, and never more than a hint.

The outbox has one or more shards, and each is worked on by one loop of one instance. Instances share the shards so that
each has about as many; when one comes or goes, no more shards move than must.

| leadership  | who holds a shard                           | who should hold it                                      |
|---|---|---|
| `kafka`     | the owner of the shard's partition, as long | the group's coordinator and the sticky assignment       |
|             | as it is connected: `election.py`           |                                                         |
| `database`, | the owner of the shard's lease              | each instance reckons its share from how many are alive |
| `redis`     |                                             | and how many of them come before it: `share.py`         |
| `none`      | whoever runs                                | whoever runs it decides: `unguarded.py`                 |

A shard goes from one to another in four steps: the old loop is told no, it stops, it asks again and thereby shows that
it has stopped, the lease is released or the partition given back: `notice.py`. Only then does the next loop begin,
unless the old one takes too long.

What is authoritative:

- **Nothing here.** The broker's fence on the shard's `transactional.id` (`relay/drain.py`) decides who publishes. Where
  there is none, with `at-least-once`, nobody decides, and two that hold a shard at once may publish a row twice.

What is only a hint, and may be late, lost or true of two instances at once:

- **Who is alive.** A member is known for some seconds after its last beat, by the clock of the server.
- **A share.** It is reckoned from who is alive. While two instances know different members, their shares may overlap,
  so that shards move twice, or leave a shard unclaimed for a beat; a lease still has one holder.
- **A lease.** It ends by the server's clock, whatever its holder believes.

Invariants

1. The shares of instances that know the same members add up to the shards and differ by one at most.
2. An instance tries no shard that would take it above its share, and gives up no shard within it.
3. A join raises nobody's share and a leave lowers nobody's. So a shard that need not move does not.

What if …

| an instance …                    | then                                                                              |
|---|---|
| joins                            | all shares are reckoned anew within a beat; those above theirs give the excess    |
|                                  | up, the newcomer takes it                                                         |
| stops in an orderly way          | it leaves with its last shard; the rest take over within a beat                   |
| is killed                        | it is missed when its membership and its leases have run out (`kafka`: when its   |
|                                  | session has), then the rest take over                                             |
| is paused and wakes up later     | it beats before it asks, finds its leases gone and takes what its share allows    |
| has one loop that ended for good | that shard may rest until the instance leaves, which should be soon: the others   |
|                                  | count on it                                                                       |
| does not stop when it is told no | its lease runs out (`kafka`: the partition goes after a while); the fence decides |

| the surroundings …               | then                                                                              |
|---|---|
| more instances than shards       | some have no shard and wait                                                       |
| the members' server stops        | so do the leases on it: all stop when they next ask, and begin again with the     |
|                                  | server                                                                            |
"""
