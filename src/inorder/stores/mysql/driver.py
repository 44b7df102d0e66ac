"""The driver of MySQL and MariaDB, which is an extra; our SQL files can be read without it."""

from __future__ import annotations

from inorder.model.errors import ConfigurationError

try:
    import pymysql
    from pymysql.constants import CLIENT
except ModuleNotFoundError as error:
    raise ConfigurationError(
        "database.url is one of MySQL or MariaDB, which needs the package pymysql; it is not installed.",
        hint="Install it with `pip install 'inorder[mysql]'`.",
    ) from error

__all__ = ["CLIENT", "pymysql"]
