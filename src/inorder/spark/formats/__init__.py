"""The ends of a pipeline as formats of Spark's Python Data Source API, for your own Spark applications.

Each file is a format: what its options and columns are, and what Spark calls on the driver and in tasks. What a task
works with is put together from the settings on the driver (`inorder/wiring/formats.py`) and travels there pickled.

| format            | way    | exactly once because                                                      |
|-------------------|--------|---------------------------------------------------------------------------|
| `inorder.table`   | sink   | the pointer of each Kafka partition moves in the transaction of its rows  |
| `inorder.kafka`   | sink   | the batch's number is committed in the transaction of its records         |
| `inorder.journal` | sink   | the journal's own end says which events it has                            |
| `inorder.outbox`  | source | it changes nothing                                                        |
"""
