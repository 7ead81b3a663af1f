"""Which URLs are served: one table of the drivers and of the options that each of them takes.

One driver per database, the one the tests run: a URL without a driver gets it, a URL with another
one is refused. ``mariadb://`` is said as ``mysql://``, because oslo.db knows the dialect by that
name only.

What is no option of a table is refused here, by name, and what is one has the type that the driver
wants: so no driver ever words an error about a URL, in which it might tell a password.

Sources: PostgreSQL's "Parameter Key Words" of libpq, PyMySQL's ``Connection``.
"""

from __future__ import annotations

import dataclasses
import os
import re
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import sqlalchemy.exc
from sqlalchemy import URL, make_url

from resource_objects import exceptions

# --- what an option may be ---


class Option(NamedTuple):
    """What a URL may say under one name.

    :param read: returns the value that a text means; raises ValueError if none
    :param default: what holds where the URL says nothing; None leaves it to the driver
    :param is_ours: whether it is meant for us and not for the driver
    :param runs_sql: whether whoever writes it has statements run
    """

    read: Callable[[str], Any]
    expected: str
    default: Any = None
    is_ours: bool = False
    runs_sql: bool = False


_WHOLE = re.compile("[0-9]{1,9}", re.ASCII)
_FLAGS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


def _number(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
            raise ValueError(text)
        return int(text)

    return read


def _flag(text: str) -> bool:
    try:
        return _FLAGS[text.lower()]
    except KeyError:
        raise ValueError(text) from None


def _file(text: str) -> str:
    if not os.path.isfile(text) or not os.access(text, os.R_OK):
        raise ValueError(text)
    return text


def _seconds(default: int | None, *, is_ours: bool = False, least: int = 1) -> Option:
    expected = f"whole seconds, from {least} to 9999"
    return Option(_number(least, 9999), expected, default, is_ours)


def _count(default: int | None) -> Option:
    return Option(_number(1, 9999), "a number from 1 to 9999", default)


def _word(*words: str, default: str | None = None, is_ours: bool = False) -> Option:
    def read(text: str) -> str:
        for word in words:
            if text.lower() == word.lower():
                return word
        raise ValueError(text)

    return Option(read, " or ".join(words), default, is_ours)


_TEXT = Option(str, "text")
_YES_OR_NO = Option(_flag, "yes or no")
_FILE = Option(_file, "a file that can be read")
_SQL = Option(str, "text", runs_sql=True)
_ASKED = Option(_flag, "yes or no", default=False, is_ours=True)

# --- the table ---

#: What makes a name a string of letters that compares by code points, on a connection to MySQL.
_CHARSET = "utf8mb4"

_SQLITE = {
    # what is acknowledged is on disk; NORMAL leaves the last moments to the next checkpoint
    "synchronous": _word("FULL", "NORMAL", default="FULL", is_ours=True),
    # whether a file may lie on a network file system
    "network": _ASKED,
}

#: What both servers know. A lock is waited for up to 30 seconds, so an answer may take longer.
_SERVER = {
    "connect_timeout": _seconds(5),
    # how long an answer may stay away, while a connection is waited on
    "read_timeout": _seconds(60, is_ours=True),
    # how long the server lets a transaction idle, whose client may have stopped; 0: for ever
    "idle_timeout": _seconds(10, is_ours=True, least=0),
    # after how many seconds of silence a connection is probed, how often, and how many times
    "keepalives_idle": _seconds(30),
    "keepalives_interval": _seconds(10),
    "keepalives_count": _count(3),
    # whether options that run statements are taken
    "run_sql": _ASKED,
}

_POSTGRESQL = {
    **_SERVER,
    # a pooler that gives each transaction another session: nothing may be left in one
    "pooler": _word("transaction", is_ours=True),
    "application_name": _TEXT,
    "target_session_attrs": _word(
        *("any", "read-write", "read-only", "primary", "standby", "prefer-standby")
    ),
    "load_balance_hosts": _word("disable", "random"),
    "tcp_user_timeout": Option(_number(0, 999_999_999), "milliseconds"),
    "hostaddr": _TEXT,
    "client_encoding": _word("utf8"),
    "passfile": _FILE,
    "service": _TEXT,
    "requirepeer": _TEXT,
    "require_auth": _TEXT,
    "channel_binding": _word("disable", "prefer", "require"),
    "sslmode": _word("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "sslrootcert": Option(
        lambda text: text if text == "system" else _file(text), "a file that can be read, or system"
    ),
    "sslcert": _FILE,
    "sslkey": _FILE,
    "sslpassword": _TEXT,
    "sslcrl": _FILE,
    "ssl_min_protocol_version": _word("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"),
    "ssl_max_protocol_version": _word("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"),
    "sslnegotiation": _word("postgres", "direct"),
    "sslsni": Option(_number(0, 1), "0 or 1"),
    "gssencmode": _word("disable", "prefer", "require"),
    "krbsrvname": _TEXT,
    "options": _SQL,
}

_MYSQL = {
    **_SERVER,
    "charset": _word(_CHARSET, default=_CHARSET),
    "unix_socket": _TEXT,
    "bind_address": _TEXT,
    "program_name": _TEXT,
    "max_allowed_packet": Option(_number(1024, 999_999_999), "bytes, from 1024"),
    # passwords that nobody else shall see
    "read_default_file": _FILE,
    "read_default_group": _TEXT,
    "ssl_ca": _FILE,
    "ssl_cert": _FILE,
    "ssl_key": _FILE,
    "ssl_key_password": _TEXT,
    "ssl_disabled": _YES_OR_NO,
    "ssl_verify_cert": _YES_OR_NO,
    "ssl_verify_identity": _YES_OR_NO,
    "init_command": _SQL,
}


class Driver(NamedTuple):
    """What serves a kind of database.

    :param extra: the extra of this package that installs it
    :param host: the name by which a URL may give hosts as an option, too
    """

    name: str
    extra: str
    options: Mapping[str, Option]
    host: str = ""


DRIVERS = {
    "sqlite": Driver("pysqlite", "", _SQLITE),
    "postgresql": Driver("psycopg", "postgresql", _POSTGRESQL, host="host"),
    "mysql": Driver("pymysql", "mysql", _MYSQL),
}
_ALIASES = {"mariadb": "mysql", "postgres": "postgresql"}
_PASSWORDS = ("password", "passwd")  # as options

# --- reading one ---


@dataclasses.dataclass(frozen=True)
class Address:
    """A database that a URL names, with everything that was said about it.

    :param url: without options; of several hosts the first one
    :param driver: options as the driver takes them, by its names
    :param ours: options that are ours, each of them
    :param hosts: hosts with their ports, as they may be shown
    """

    url: URL
    driver: Mapping[str, Any] = dataclasses.field(repr=False)
    ours: Mapping[str, Any]
    hosts: str = ""

    @property
    def kind(self) -> str:
        """``sqlite``, ``postgresql`` or ``mysql``."""
        return self.url.get_backend_name()

    @property
    def shown(self) -> str:
        """The database as it may be shown: without its password and options.

        >>> parse("postgresql://me:secret@db/lab?application_name=x").shown
        'postgresql+psycopg://me:***@db/lab'
        """
        if self.kind == "sqlite":
            return f"sqlite:///{self.url.database}"
        parts = self.url.drivername, self.url.username, self.url.password
        plain = URL.create(*parts, database=self.url.database).render_as_string()
        scheme, rest = plain.split("://")
        user, at, database = rest.rpartition("@")
        return f"{scheme}://{user}{at}{self.hosts}{database}"


def parse(url: str, **defaults: Any) -> Address:
    """Return what a URL says.

    :param defaults: of some options, instead of those of the table
    :raises InvalidURL: if it is no URL, or of a database, driver or option that is not served

    >>> parse("mariadb://root@db/lab").url.drivername
    'mysql+pymysql'
    >>> parse("postgresql://a:5432,b:5433/lab").driver["host"]
    'a,b'
    >>> parse("sqlite:///lab.db?cache=shared")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidURL: ledger URL: got 'sqlite:///...', expected an option...
    """
    first, hosts = _without_hosts(url)
    given = _made(first)
    # outside of any `except`: the errors of what reads URLs, and of numbers, tell what they read
    if given is None:
        raise _refuse(url, "a URL such as sqlite:///lab.db or postgresql://db/lab")
    name, _, driver = given.drivername.partition("+")
    name = _ALIASES.get(name, name)
    if name not in DRIVERS or driver not in ("", DRIVERS[name].name):
        served = ", ".join(f"{name}+{driver.name}" for name, driver in DRIVERS.items())
        raise _refuse(url, f"one of {served}")
    if given.port is not None and not 0 < given.port < 65536:
        raise _refuse(url, "a port from 1 to 65535")
    given = given.set(drivername=f"{name}+{DRIVERS[name].name}")
    if name == "sqlite":
        return _file_address(url, given, hosts, defaults)
    return _server_address(url, given, hosts, defaults)


_HOSTS = re.compile(r"([A-Za-z0-9+.-]+://(?:[^/?#]*@)?)([^/?#@]*,[^/?#@]*)(.*)", re.DOTALL)


def _without_hosts(url: str) -> tuple[str, list[str]]:
    """Return a URL with the first of its hosts alone, and all of them if they are several."""
    found = _HOSTS.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        return url, []
    hosts = found[2].split(",")
    return f"{found[1]}{hosts[0]}{found[3]}", hosts


def _made(url: str) -> URL | None:
    try:
        made = make_url(url)
        return made if made.port is None or made.port >= 0 else None
    except (sqlalchemy.exc.ArgumentError, ValueError, TypeError):
        return None


def _file_address(url: str, given: URL, hosts: list[str], defaults: Mapping[str, Any]) -> Address:
    path = given.database or ""
    if "\0" in path:
        raise _refuse(url, "a path without a NUL character")
    if not path or ":memory:" in path:
        raise _refuse(url, "a file, as in sqlite:///lab.db; for memory use memory://")
    if hosts or given.host or given.username or path.startswith("file:"):
        raise _refuse(url, "sqlite:/// and a path (four slashes for an absolute one)")
    _, ours = _options(url, DRIVERS["sqlite"], given.query, defaults)
    return Address(given.set(query={}), {}, ours)


def _server_address(url: str, given: URL, hosts: list[str], defaults: Mapping[str, Any]) -> Address:
    driver = DRIVERS[given.get_backend_name()]
    query = dict(given.query)
    for name in ("user", *_PASSWORDS):  # where the driver takes them as options, too
        value = query.pop(name, None)
        if isinstance(value, str):
            given = given.set(username=value) if name == "user" else given.set(password=value)
        elif value is not None:
            raise _refuse(url, f"{name} once")
    if not given.database:
        raise _refuse(url, "the name of a database after the host")
    try:
        f"{url}{urllib.parse.unquote(url)}".encode()
    except UnicodeEncodeError:  # a driver would say it in an error of its own
        raise _refuse(url, "text that can be encoded: no lone surrogates") from None
    if "\0" in urllib.parse.unquote(url):
        raise _refuse(url, "text without a NUL character")
    places = _places(url, given, hosts, query if driver.host else {})
    if len(places) > 1 and not driver.host:
        raise _refuse(url, "one host")
    for_driver, ours = _options(url, driver, query, defaults)
    if driver.host and places:
        for_driver["host"] = ",".join(place.host for place in places)
        if any(place.port for place in places):
            for_driver["port"] = ",".join(str(place.port or "") for place in places)
    shown = ",".join(place.shown for place in places if not place.host.startswith("/"))
    return Address(given.set(query={}), for_driver, ours, shown)


class _Server(NamedTuple):
    host: str
    port: int | None

    @property
    def shown(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"


def _places(url: str, given: URL, hosts: list[str], query: dict[str, Any]) -> list[_Server]:
    """Return the hosts that a URL names before its path or, taken out of them, in its options."""
    others, ports = _all_of(query.pop("host", ())), _all_of(query.pop("port", ()))
    if others and given.host:
        raise _refuse(url, "hosts in one place")
    hosts = hosts or others
    if not hosts:
        return [_Server(given.host, given.port)] if given.host else []
    if len(ports) not in (0, 1, len(hosts)):
        raise _refuse(url, "a port for each host, or one for all")
    places = []
    for number, host in enumerate(hosts):
        place = _place(host, ports[number] if len(ports) > 1 else "".join(ports))
        if place is None:
            raise _refuse(url, "hosts as host:port between commas, with ports from 1 to 65535")
        places.append(place)
    return places


def _place(host: str, port: str) -> _Server | None:
    if port and (not _WHOLE.fullmatch(port) or not 0 < int(port) < 65536):
        return None
    number = int(port) if port else None
    if host.startswith("/"):  # a directory of sockets
        return _Server(host, number)
    made = _made(f"x://{host}/x")
    if made is None or not made.host or (made.port is not None and not 0 < made.port < 65536):
        return None
    return _Server(made.host, number or made.port)


def _all_of(value: Any) -> list[str]:
    return [
        part for one in ([value] if isinstance(value, str) else value) for part in one.split(",")
    ]


_NAME = re.compile("[A-Za-z_]{1,40}", re.ASCII)


def _options(
    url: str, driver: Driver, query: Mapping[str, Any], defaults: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the options of a URL say to the driver, and to us."""
    said = {name: defaults.get(name, option.default) for name, option in driver.options.items()}
    for name, text in query.items():
        option = driver.options.get(name)
        if option is None:
            shown = name if _NAME.fullmatch(name) else "what it has"
            known = ", ".join(sorted(driver.options))
            raise _refuse(url, f"an option of {driver.name}, not {shown}: {known}")
        if not isinstance(text, str):
            raise _refuse(url, f"{name} once")
        try:
            said[name] = option.read(text)
        except ValueError:
            said[name] = None
        if said[name] is None:
            raise _refuse(url, f"{name} to be {option.expected}")
    for name in query:
        if driver.options[name].runs_sql and not said["run_sql"]:
            raise _refuse(url, f"no {name}, which runs statements, unless run_sql=yes allows it")
    ours = {name for name, option in driver.options.items() if option.is_ours}
    return (
        {name: value for name, value in said.items() if name not in ours and value is not None},
        {name: said[name] for name in ours},
    )


def _refuse(url: object, expected: str) -> exceptions.InvalidURL:
    return exceptions.InvalidURL("ledger URL", url, expected)
