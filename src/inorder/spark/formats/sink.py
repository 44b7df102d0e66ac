"""What the sinks have in common: they add, their options and columns are checked, and their tasks take Arrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from inorder.model.errors import ConfigurationError
from inorder.spark.formats.columns import Column, check_columns
from inorder.spark.formats.options import KnownOptions, Options
from inorder.spark.formats.whole import Grouping, Spread, spread_of


class Sink(DataSource):
    """A format that records can be written to."""

    known_options: ClassVar[KnownOptions]
    known_columns: ClassVar[Sequence[Column]]

    @classmethod
    def name(cls) -> str:
        """What users write into `.format(…)`."""
        return cls.known_options.format

    def checked(self, schema: StructType, overwrite: bool) -> Options:
        """The options, once they and the columns are found right."""
        options = self.known_options.read(self.options)
        if overwrite:
            raise ConfigurationError(
                f"The format {self.name()!r} adds and never overwrites.",
                hint='Write .mode("append"), or .outputMode("append") in a stream.',
            )
        check_columns(self.name(), types_of(schema), self.known_columns)
        return options

    def spread(self, schema: StructType, options: Options, grouping: Grouping) -> Spread:
        """How rows are spread over tasks, if somebody says so."""
        return spread_of(grouping, schema[grouping.rising].metadata or {}, options.says(grouping.promise))


def types_of(schema: StructType) -> Mapping[str, str]:
    """The names and types of columns."""
    return {field.name: field.dataType.simpleString() for field in schema.fields}
