"""Real servers from wheels and jars, for laptops, tests and the demo; none outlives the process that started it."""

from inorder.embedded.cassandra import Cassandra
from inorder.embedded.jars import delta_jars, spark_jars
from inorder.embedded.kafka import Kafka
from inorder.embedded.mariadb import MariaDB
from inorder.embedded.postgres import Postgres
from inorder.embedded.redis import Redis
from inorder.embedded.spark import SparkCluster
from inorder.embedded.stack import Stack

__all__ = ["Cassandra", "Kafka", "MariaDB", "Postgres", "Redis", "SparkCluster", "Stack", "delta_jars", "spark_jars"]
