"""The URLs of databases: which databases, drivers and options a ledger accepts.

Each database has one driver, the one that the tests use: a URL without a driver gets it, a URL with
another one is refused. ``mariadb://`` becomes ``mysql://``, because oslo.db knows the dialect only
by that name.

An option that is not in a table is refused here by its name. Most values of the options of libpq
are text and checked by libpq, which names the option. PyMySQL checks no types, so its values are
checked here. No error shows a password.
"""

from __future__ import annotations

import dataclasses
import os
import re
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import sqlalchemy.exc
from sqlalchemy import URL, make_url

from resource_objects import exceptions

# --- options --------------------------------------------------------------------------------------

_FLAGS: Final = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


class Option(NamedTuple):
    """An option of a URL.

    :param values: the allowed values, as errors show them
    :param read: returns the value of a text, None if it is not allowed
    :param default: the value where a URL has none; None: the option is left out
    """

    values: str
    read: Callable[[str], Any]
    default: Any = None


def _number(least: int, most: int, default: int | None, unit: str = "whole seconds,") -> Option:
    def read(text: str) -> int | None:
        is_number = re.fullmatch("[0-9]{1,9}", text, re.ASCII)
        return int(text) if is_number and least <= int(text) <= most else None

    return Option(f"{unit} from {least} to {most}", read, default)


def _word(*words: str, default: str | None = None) -> Option:
    allowed = {word.lower(): word for word in words}
    return Option(" or ".join(words), lambda text: allowed.get(text.lower()), default)


def _flag(default: bool | None = None) -> Option:
    return Option("yes or no", lambda text: _FLAGS.get(text.lower()), default)


def _readable(text: str) -> str | None:
    return text if os.path.isfile(text) and os.access(text, os.R_OK) else None


_TEXT, _FILE = Option("text", str), Option("a file that can be read", _readable)

_SQLITE: Final = {"synchronous": _word("FULL", "NORMAL", default="FULL"), "network": _flag(False)}
_SERVER: Final = {
    "connect_timeout": _number(1, 9999, 5),
    # a lock is waited for up to 30 seconds, so an answer may take longer
    "read_timeout": _number(1, 9999, 60),
    "idle_timeout": _number(0, 9999, 10),
    "keepalives_idle": _number(1, 9999, 30),
    "keepalives_interval": _number(1, 9999, 10),
    "keepalives_count": _number(1, 9999, 3, "a number"),
    "run_sql": _flag(False),
}
_LIBPQ: Final = (
    *("application_name", "channel_binding", "gssencmode", "hostaddr", "krbsrvname", "options"),
    *("load_balance_hosts", "require_auth", "requirepeer", "service", "ssl_max_protocol_version"),
    *("ssl_min_protocol_version", "sslnegotiation", "sslpassword", "sslsni"),
    *("target_session_attrs", "tcp_user_timeout"),
)
_POSTGRESQL: Final = {
    **_SERVER,
    **dict.fromkeys(_LIBPQ, _TEXT),
    # libpq ignores most files that it cannot read
    **dict.fromkeys(("passfile", "sslcert", "sslkey", "sslcrl"), _FILE),
    "sslrootcert": Option(
        f"{_FILE.values}, or system", lambda text: text if text == "system" else _readable(text)
    ),
    "sslmode": _word("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "client_encoding": _word("utf8"),
    "pooler": _word("transaction"),
}
_MYSQL: Final = {
    **_SERVER,
    **dict.fromkeys(("bind_address", "init_command", "program_name", "read_default_group"), _TEXT),
    **dict.fromkeys(("ssl_key_password", "unix_socket"), _TEXT),
    **dict.fromkeys(("read_default_file", "ssl_ca", "ssl_cert", "ssl_key"), _FILE),
    **dict.fromkeys(("ssl_disabled", "ssl_verify_cert", "ssl_verify_identity"), _flag()),
    "max_allowed_packet": _number(1024, 999_999_999, None, "bytes,"),
    "charset": _word("utf8mb4", default="utf8mb4"),
}
#: The options of this library, which no driver gets.
_OURS: Final = {"synchronous", "network", "read_timeout", "idle_timeout", "run_sql", "pooler"}
#: Options by which the author of a URL runs statements.
_RUN_SQL: Final = {"options", "init_command"}


#: The driver of each kind of database, and its options.
DRIVERS = {
    "sqlite": ("pysqlite", _SQLITE),
    "postgresql": ("psycopg", _POSTGRESQL),
    "mysql": ("pymysql", _MYSQL),
}
_ALIASES = {"mariadb": "mysql", "postgres": "postgresql"}


class _Unexpected(Exception):
    """A URL is not accepted; the message is the expected form."""


def _options(
    kind: str, query: Mapping[str, Any], defaults: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options for the driver, and ours."""
    driver, options = DRIVERS[kind]
    values = {name: option.default for name, option in options.items()}
    values |= {name: value for name, value in defaults.items() if name in values}
    for name, text in query.items():
        if name not in values:
            shown = name if re.fullmatch("[A-Za-z_]{1,40}", name, re.ASCII) else "the one it has"
            raise _Unexpected(f"an option of {driver}, not {shown}: {', '.join(sorted(values))}")
        if not isinstance(text, str):
            raise _Unexpected(f"{name} once")
        values[name] = options[name].read(text)
        if values[name] is None:
            raise _Unexpected(f"{name} to be {options[name].values}")
    for name in _RUN_SQL.intersection(query):
        if not values["run_sql"]:
            raise _Unexpected(f"no {name}, which runs statements, unless run_sql=yes allows it")
    ours = {name: values.pop(name) for name in options if name in _OURS}
    return {name: value for name, value in values.items() if value is not None}, ours


# --- URLs -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Address:
    """A database that a URL names, with its options.

    :param url: without options; of several hosts the first one
    :param driver: options for the driver, by its names
    :param ours: every option of this library, with its default where the URL has none
    :param hosts: hosts with their ports, as errors show them
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
        """The database without its password and options.

        >>> parse("postgresql://me:secret@db/lab?application_name=x").shown
        'postgresql+psycopg://me:***@db/lab'
        """
        if self.kind == "sqlite":
            return f"sqlite:///{self.url.database}"
        parts = self.url.drivername, self.url.username, self.url.password
        without_hosts = URL.create(*parts, database=self.url.database).render_as_string()
        scheme, path = without_hosts.split("://")
        user, at, database = path.rpartition("@")
        return f"{scheme}://{user}{at}{self.hosts}{database}"


def parse(url: str, **defaults: Any) -> Address:
    """Return the database and the options of a URL.

    :param defaults: of some options, in place of the usual ones
    :raises InvalidInput: if it is not a URL, or its database, driver or option is not accepted

    >>> parse("mariadb://root@db/lab").url.drivername
    'mysql+pymysql'
    >>> parse("postgresql://a:5432,b:5433/lab").driver["host"]
    'a,b'
    >>> parse("sqlite:///lab.db?cache=shared")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidInput: ledger URL: got 'sqlite:///...', expected an option...
    """
    try:
        return _address_of(url, defaults)
    except _Unexpected as error:
        expected = str(error)
    # outside of the handler: the errors of URL parsers and of int() show what they read
    raise exceptions.InvalidInput("URL", "ledger URL", url, expected)


#: A URL with several hosts, and one host.
_HOSTS = re.compile(r"([A-Za-z0-9+.-]+://(?:[^/?#]*@)?)([^/?#@]*,[^/?#@]*)(.*)", re.DOTALL)
_HOST = re.compile(r"(?:\[([^/?]+)\]|([^/:@]+))(?::([0-9]{1,5}))?", re.ASCII)


def _address_of(url: str, defaults: Mapping[str, Any]) -> Address:
    several = _HOSTS.fullmatch(url) if isinstance(url, str) else None
    hosts = several[2].split(",") if several else []
    try:
        parsed = make_url(f"{several[1]}{hosts[0]}{several[3]}" if several else url)
        port = parsed.port or 0
    except (sqlalchemy.exc.ArgumentError, ValueError, TypeError):
        port = -1
    if port < 0:
        raise _Unexpected("a URL such as sqlite:///lab.db or postgresql://db/lab")
    name, _, driver = parsed.drivername.partition("+")
    name = _ALIASES.get(name, name)
    if name not in DRIVERS or driver not in ("", DRIVERS[name][0]):
        accepted = ", ".join(f"{name}+{driver}" for name, (driver, _) in DRIVERS.items())
        raise _Unexpected(f"one of {accepted}")
    if parsed.port is not None and not 0 < port < 65536:
        raise _Unexpected("a port from 1 to 65535")
    parsed = parsed.set(drivername=f"{name}+{DRIVERS[name][0]}")
    address = _file_address if name == "sqlite" else _server_address
    return address(url, parsed, hosts, defaults)


def _file_address(url: str, parsed: URL, hosts: list[str], defaults: Mapping[str, Any]) -> Address:
    path = parsed.database or ""
    if "\0" in path:
        raise _Unexpected("a path without a NUL character")
    if not path or ":memory:" in path:
        raise _Unexpected("a file, as in sqlite:///lab.db; for memory use memory://")
    if hosts or parsed.host or parsed.username or path.startswith("file:"):
        raise _Unexpected("sqlite:/// and a path (four slashes for an absolute one)")
    _, ours = _options("sqlite", parsed.query, defaults)
    return Address(parsed.set(query={}), {}, ours)


def _server_address(
    url: str, parsed: URL, hosts: list[str], defaults: Mapping[str, Any]
) -> Address:
    query = dict(parsed.query)
    for name in ("user", "password", "passwd"):  # the drivers accept them as options, too
        value = query.pop(name, None)
        if isinstance(value, str):
            is_user = name == "user"
            parsed = parsed.set(username=value) if is_user else parsed.set(password=value)
        elif value is not None:
            raise _Unexpected(f"{name} once")
    if not parsed.database:
        raise _Unexpected("the name of a database after the host")
    try:
        f"{url}{urllib.parse.unquote(url)}".encode()
    except UnicodeEncodeError:  # which a driver would show in its own error
        raise _Unexpected("text that can be encoded: no lone surrogates") from None
    if "\0" in urllib.parse.unquote(url):
        raise _Unexpected("text without a NUL character")
    has_host_option = parsed.get_backend_name() == "postgresql"
    servers = _servers(parsed, hosts, query if has_host_option else {})
    if len(servers) > 1 and not has_host_option:
        raise _Unexpected("one host")
    options, ours = _options(parsed.get_backend_name(), query, defaults)
    if has_host_option and servers:
        options["host"] = ",".join(host for host, _ in servers)
        if any(port for _, port in servers):
            options["port"] = ",".join(port for _, port in servers)
    shown = ",".join(_shown(*server) for server in servers if not server[0].startswith("/"))
    return Address(parsed.set(query={}), options, ours, shown)


def _shown(host: str, port: str) -> str:
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{port}" if port else host


def _servers(parsed: URL, hosts: list[str], query: dict[str, Any]) -> list[tuple[str, str]]:
    """Return hosts and ports: those before the path, or those of the options, which are removed."""
    listed, ports = _split(query.pop("host", ())), _split(query.pop("port", ()))
    if listed and parsed.host:
        raise _Unexpected("hosts in one place")
    hosts = hosts or listed
    if not hosts:
        return [(parsed.host, str(parsed.port or ""))] if parsed.host else []
    ports = ports * len(hosts) if len(ports) == 1 else ports or [""] * len(hosts)
    if len(ports) != len(hosts):
        raise _Unexpected("a port for each host, or one for all")
    servers = []
    for host, port in zip(hosts, ports, strict=True):
        match = _HOST.fullmatch(host)
        name, own_port = (host, "") if match is None else (match[1] or match[2], match[3])
        used = port or own_port or ""
        is_port = not used or (re.fullmatch("[0-9]{1,5}", used) and 0 < int(used) < 65536)
        if not is_port or (match is None and not host.startswith("/")):  # a directory of sockets
            raise _Unexpected("hosts as host:port between commas, with ports from 1 to 65535")
        servers.append((name, used))
    return servers


def _split(value: str | Iterable[str]) -> list[str]:
    return ",".join([value] if isinstance(value, str) else value).split(",") if value else []
