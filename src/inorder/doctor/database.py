"""The database of the outbox: which one it is, and who looks at it."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy.engine import URL, make_url

from inorder.doctor.check import Check, of_error, unreachable
from inorder.doctor.polling import examine_polling
from inorder.model.errors import InorderError, UnreachableError
from inorder.settings import Settings
from inorder.settings.url import masked
from inorder.stores.credentials import with_login
from inorder.stores.opening import dialect_of

_START = "Start the database, or correct database.url; `inorder up` starts one here."


def examine_database(settings: Settings) -> list[Check]:
    """What the relay and the pipeline need from the database."""
    found: list[Check] = []
    try:
        url = make_url(settings.database.require_url())
        # What was found before an error stays in the list, and is told.
        found.extend(_checks(url, settings))
        if all(check.status != "fail" for check in found):
            found.extend(examine_polling(settings))
    except UnreachableError as error:
        found.append(unreachable("database", f"{shown(url)}: {error.message}", _START))
    except InorderError as error:
        found.append(of_error("database", error))
    return found


def _checks(url: URL, settings: Settings) -> Iterator[Check]:
    # Imported here, because the drivers are extras.
    match dialect_of(settings.database.require_url()):
        case "postgres":
            from inorder.doctor.postgres import examine_postgres

            return examine_postgres(with_login(settings.database.require_url()), shown(url), settings)
        case "mysql":
            from inorder.doctor.mysql import examine_mysql

            return examine_mysql(shown(url), settings)
        case "sqlite":
            from inorder.doctor.sqlite import examine_sqlite

            return examine_sqlite(shown(url), settings)


def shown(url: URL) -> str:
    """The URL as it may be printed."""
    # SQLAlchemy hides the password before the @ only; one in the query needs our own mask.
    return masked(url.render_as_string(hide_password=True))
