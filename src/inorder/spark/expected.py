"""How the pointers that the driver saw committed get to the tasks of a batch: as a property of its job.

The function that tasks run is made once, with the query. One for each batch, with the pointers inside it, took Spark a
sixth of a small batch: it pickled it, planned it and looked up its columns anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson
from pyspark import TaskContext
from pyspark.sql import DataFrame

from inorder.model.errors import GuaranteeError
from inorder.ports.partition_reader import Place

PROPERTY: Final = "inorder.expected"


def tell_tasks(batch: DataFrame, pointers: Mapping[Place, int]) -> None:
    """Hands pointers to the tasks of whatever this thread runs next."""
    text = orjson.dumps([(topic, partition, pointer) for (topic, partition), pointer in pointers.items()])
    batch.sparkSession.sparkContext.setLocalProperty(PROPERTY, text.decode())


def told_to_task() -> dict[Place, int]:
    """The pointers, in a task; without them nothing may be applied, as nobody would notice one that moved back."""
    task = TaskContext.get()
    text = None if task is None else task.getLocalProperty(PROPERTY)
    if text is None:
        raise GuaranteeError("A task was not told which pointers to expect.", hint="Leave PYSPARK_PIN_THREAD as it is.")
    return {(topic, partition): pointer for topic, partition, pointer in orjson.loads(text)}
