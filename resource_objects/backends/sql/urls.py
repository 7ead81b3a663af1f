"""Which URLs are served, and by which driver.

One driver per database, the one the tests run: a URL without a driver gets it, a URL with another
one is refused. ``mariadb://`` is said as ``mysql://``, because oslo.db knows the dialect by that
name only.
"""

from __future__ import annotations

import re

import sqlalchemy.exc
from sqlalchemy import URL, make_url

from resource_objects import exceptions

#: ``{backend: (driver, extra that installs it)}``
DRIVERS = {
    "sqlite": ("pysqlite", ""),
    "postgresql": ("psycopg", "postgresql"),
    "mysql": ("pymysql", "mysql"),
}
_ALIASES = {"mariadb": "mysql", "postgres": "postgresql"}
_SYNCHRONOUS = ("NORMAL", "FULL")
#: What makes a name a string of letters that compares by code points, on a connection to MySQL.
_CHARSET = "utf8mb4"


def parse(url: str) -> URL:
    """Return a URL with its driver, or raise.

    :raises InvalidURL: if it is no URL, or of a database, driver or option that is not served

    >>> parse("mariadb://root@db/lab").drivername
    'mysql+pymysql'
    >>> parse("sqlite://")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidURL: ledger URL: got 'sqlite://', expected a file, ...
    """
    try:
        given = make_url(url)
        port = given.port
    except (sqlalchemy.exc.ArgumentError, ValueError, TypeError) as error:
        raise _refuse(url, "a URL such as sqlite:///lab.db or postgresql://db/lab") from error
    name, _, driver = given.drivername.partition("+")
    name = _ALIASES.get(name, name)
    if name not in DRIVERS or driver not in ("", DRIVERS[name][0]):
        served = ", ".join(f"{name}+{driver}" for name, (driver, _) in DRIVERS.items())
        raise _refuse(url, f"one of {served}")
    if port is not None and not 0 < port < 65536:
        raise _refuse(url, "a port from 1 to 65535")
    parsed = given.set(drivername=f"{name}+{DRIVERS[name][0]}")
    return _CHECKS[name](url, parsed)


def _sqlite(url: str, parsed: URL) -> URL:
    if "\0" in (parsed.database or ""):
        raise _refuse(url, "a path without a NUL character")
    if not parsed.database or ":memory:" in parsed.database:
        raise _refuse(url, "a file, as in sqlite:///lab.db; for memory use memory://")
    if parsed.host or parsed.username or parsed.database.startswith("file:"):
        raise _refuse(url, "sqlite:/// and a path (four slashes for an absolute one)")
    unknown = set(parsed.query) - {"synchronous"}
    if unknown or synchronous(parsed) not in _SYNCHRONOUS:
        raise _refuse(url, f"no option but ?synchronous={' or '.join(_SYNCHRONOUS)}")
    return parsed


def synchronous(parsed: URL) -> str:
    """Return how a SQLite file is flushed: NORMAL unless the URL says FULL."""
    return str(parsed.query.get("synchronous", "NORMAL")).upper()


def _postgresql(url: str, parsed: URL) -> URL:
    return _server(url, parsed)


def _mysql(url: str, parsed: URL) -> URL:
    if parsed.query.get("charset", _CHARSET) != _CHARSET:
        raise _refuse(url, f"no charset but {_CHARSET}")
    return _server(url, parsed).update_query_dict({"charset": _CHARSET})


def _server(url: str, parsed: URL) -> URL:
    if not parsed.database:
        raise _refuse(url, "the name of a database after the host")
    if "connect_timeout" not in parsed.query:
        parsed = parsed.update_query_dict({"connect_timeout": "5"})
    return parsed


_CHECKS = {"sqlite": _sqlite, "postgresql": _postgresql, "mysql": _mysql}


def shown(parsed: URL) -> str:
    """Return a URL as it may be shown: without its password and options.

    >>> shown(parse("postgresql://me:secret@db/lab"))
    'postgresql+psycopg://me:***@db/lab'
    """
    if parsed.get_backend_name() == "sqlite":
        return f"sqlite:///{parsed.database}"
    return parsed.set(query={}).render_as_string()


def _refuse(url: object, expected: str) -> exceptions.InvalidURL:
    return exceptions.InvalidURL("ledger URL", _without_password(url), expected)


def _without_password(url: object) -> object:
    if not isinstance(url, str):
        return url
    return re.sub(r"(://[^/@:]*:).*@", r"\1***@", url)
