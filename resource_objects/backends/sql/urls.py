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
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import sqlalchemy.exc
from sqlalchemy import URL, make_url

from resource_objects import exceptions

# --- options --------------------------------------------------------------------------------------

_SECONDS, _FILE, _FLAG = "whole seconds, from 1 to 9999", "a file that can be read", "yes or no"
_COUNT = "a number from 1 to 9999"

# The options of each driver with their values, which errors show and :func:`_read` interprets.
_SQLITE: Final = {"synchronous": "FULL or NORMAL", "network": _FLAG}
_SERVER: Final = {
    "connect_timeout": _SECONDS,
    "read_timeout": _SECONDS,
    "idle_timeout": "whole seconds, from 0 to 9999",
    "keepalives_idle": _SECONDS,
    "keepalives_interval": _SECONDS,
    "keepalives_count": _COUNT,
    "run_sql": _FLAG,
}
_LIBPQ: Final = (
    *("application_name", "channel_binding", "gssencmode", "hostaddr", "krbsrvname", "options"),
    *("load_balance_hosts", "require_auth", "requirepeer", "service", "ssl_max_protocol_version"),
    *("ssl_min_protocol_version", "sslnegotiation", "sslpassword", "sslsni"),
    *("target_session_attrs", "tcp_user_timeout"),
)
_POSTGRESQL: Final = {
    **_SERVER,
    **dict.fromkeys(_LIBPQ, "text"),
    # libpq ignores most files that it cannot read
    **dict.fromkeys(("passfile", "sslcert", "sslkey", "sslcrl"), _FILE),
    "sslrootcert": f"{_FILE}, or system",
    "sslmode": "disable or allow or prefer or require or verify-ca or verify-full",
    "client_encoding": "utf8",
    "pooler": "transaction",
}
_MYSQL: Final = {
    **_SERVER,
    **dict.fromkeys(("bind_address", "init_command", "program_name", "read_default_group"), "text"),
    **dict.fromkeys(("ssl_key_password", "unix_socket"), "text"),
    **dict.fromkeys(("read_default_file", "ssl_ca", "ssl_cert", "ssl_key"), _FILE),
    **dict.fromkeys(("ssl_disabled", "ssl_verify_cert", "ssl_verify_identity"), _FLAG),
    "max_allowed_packet": "bytes, from 1024 to 999999999",
    "charset": "utf8mb4",
}

#: Values where a URL has none. A lock is waited for up to 30 seconds, so an answer may take longer.
_DEFAULTS: Final[Mapping[str, Any]] = {
    "synchronous": "FULL",
    "network": False,
    "connect_timeout": 5,
    "read_timeout": 60,
    "idle_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "run_sql": False,
    "pooler": None,
    "charset": "utf8mb4",
}
#: Options of this library, which the drivers do not get.
_OURS: Final = {"synchronous", "network", "read_timeout", "idle_timeout", "pooler", "run_sql"}
#: Options by which the author of a URL runs statements.
_RUN_SQL: Final = {"options", "init_command"}
_PASSWORDS: Final = ("password", "passwd")
_FLAGS: Final = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


class Driver(NamedTuple):
    """The driver of a kind of database.

    :param extra: the extra of this package that installs it
    :param options: the options that a URL may have, each with the values that it takes
    """

    name: str
    extra: str
    options: Mapping[str, str]


DRIVERS = {
    "sqlite": Driver("pysqlite", "", _SQLITE),
    "postgresql": Driver("psycopg", "postgresql", _POSTGRESQL),
    "mysql": Driver("pymysql", "mysql", _MYSQL),
}
_ALIASES = {"mariadb": "mysql", "postgres": "postgresql"}


def _read(values: str, text: str) -> Any:
    """Return the value of an option from its text; None if it is not among the allowed values."""
    if values == "text":
        return text
    if values == _FLAG:
        return _FLAGS.get(text.lower())
    if values.startswith(_FILE):
        is_file = os.path.isfile(text) and os.access(text, os.R_OK)
        return text if is_file or (values.endswith("system") and text == "system") else None
    bounds = re.search("from ([0-9]+) to ([0-9]+)", values)
    if bounds is None:
        return next((word for word in values.split(" or ") if word.lower() == text.lower()), None)
    is_number = re.fullmatch("[0-9]{1,9}", text, re.ASCII)
    is_allowed = is_number and int(bounds[1]) <= int(text) <= int(bounds[2])
    return int(text) if is_allowed else None


def _options(
    url: str, driver: Driver, query: Mapping[str, Any], defaults: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options for the driver, and ours."""
    options = {name: _DEFAULTS[name] for name in driver.options if name in _DEFAULTS}
    options |= {name: value for name, value in defaults.items() if name in driver.options}
    for name, text in query.items():
        if name not in driver.options:
            shown = name if re.fullmatch("[A-Za-z_]{1,40}", name, re.ASCII) else "the one it has"
            allowed = ", ".join(sorted(driver.options))
            raise _refuse(url, f"an option of {driver.name}, not {shown}: {allowed}")
        if not isinstance(text, str):
            raise _refuse(url, f"{name} once")
        options[name] = _read(driver.options[name], text)
        if options[name] is None:
            raise _refuse(url, f"{name} to be {driver.options[name]}")
    for name in _RUN_SQL.intersection(query):
        if not options["run_sql"]:
            raise _refuse(url, f"no {name}, which runs statements, unless run_sql=yes allows it")
    ours = {name: value for name, value in options.items() if name in _OURS}
    return {name: value for name, value in options.items() if name not in _OURS}, ours


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
    :raises InvalidURL: if it is not a URL, or has a database, driver or option that is not accepted

    >>> parse("mariadb://root@db/lab").url.drivername
    'mysql+pymysql'
    >>> parse("postgresql://a:5432,b:5433/lab").driver["host"]
    'a,b'
    >>> parse("sqlite:///lab.db?cache=shared")
    Traceback (most recent call last):
    resource_objects.exceptions.InvalidURL: ledger URL: got 'sqlite:///...', expected an option...
    """
    first, hosts = _without_hosts(url)
    parsed = _parsed(first)
    # outside of any `except`: the errors of URL parsers and of int() show what they read
    if parsed is None:
        raise _refuse(url, "a URL such as sqlite:///lab.db or postgresql://db/lab")
    name, _, driver = parsed.drivername.partition("+")
    name = _ALIASES.get(name, name)
    if name not in DRIVERS or driver not in ("", DRIVERS[name].name):
        accepted = ", ".join(f"{name}+{driver.name}" for name, driver in DRIVERS.items())
        raise _refuse(url, f"one of {accepted}")
    if parsed.port is not None and not 0 < parsed.port < 65536:
        raise _refuse(url, "a port from 1 to 65535")
    parsed = parsed.set(drivername=f"{name}+{DRIVERS[name].name}")
    if name == "sqlite":
        return _file_address(url, parsed, hosts, defaults)
    return _server_address(url, parsed, hosts, defaults)


_HOSTS = re.compile(r"([A-Za-z0-9+.-]+://(?:[^/?#]*@)?)([^/?#@]*,[^/?#@]*)(.*)", re.DOTALL)


def _without_hosts(url: str) -> tuple[str, list[str]]:
    """Return a URL with only the first of several hosts, and the hosts; no hosts if it has one."""
    match = _HOSTS.fullmatch(url) if isinstance(url, str) else None
    if match is None:
        return url, []
    hosts = match[2].split(",")
    return f"{match[1]}{hosts[0]}{match[3]}", hosts


def _parsed(url: str) -> URL | None:
    try:
        parsed = make_url(url)
        return parsed if parsed.port is None or parsed.port >= 0 else None
    except (sqlalchemy.exc.ArgumentError, ValueError, TypeError):
        return None


def _file_address(url: str, parsed: URL, hosts: list[str], defaults: Mapping[str, Any]) -> Address:
    path = parsed.database or ""
    if "\0" in path:
        raise _refuse(url, "a path without a NUL character")
    if not path or ":memory:" in path:
        raise _refuse(url, "a file, as in sqlite:///lab.db; for memory use memory://")
    if hosts or parsed.host or parsed.username or path.startswith("file:"):
        raise _refuse(url, "sqlite:/// and a path (four slashes for an absolute one)")
    _, ours = _options(url, DRIVERS["sqlite"], parsed.query, defaults)
    return Address(parsed.set(query={}), {}, ours)


def _server_address(
    url: str, parsed: URL, hosts: list[str], defaults: Mapping[str, Any]
) -> Address:
    query = dict(parsed.query)
    for name in ("user", *_PASSWORDS):  # the drivers accept them as options, too
        value = query.pop(name, None)
        if isinstance(value, str):
            is_user = name == "user"
            parsed = parsed.set(username=value) if is_user else parsed.set(password=value)
        elif value is not None:
            raise _refuse(url, f"{name} once")
    if not parsed.database:
        raise _refuse(url, "the name of a database after the host")
    try:
        f"{url}{urllib.parse.unquote(url)}".encode()
    except UnicodeEncodeError:  # which a driver would show in its own error
        raise _refuse(url, "text that can be encoded: no lone surrogates") from None
    if "\0" in urllib.parse.unquote(url):
        raise _refuse(url, "text without a NUL character")
    has_host_option = parsed.get_backend_name() == "postgresql"
    servers = _servers(url, parsed, hosts, query if has_host_option else {})
    if len(servers) > 1 and not has_host_option:
        raise _refuse(url, "one host")
    options, ours = _options(url, DRIVERS[parsed.get_backend_name()], query, defaults)
    if has_host_option and servers:
        options["host"] = ",".join(host for host, _ in servers)
        if any(port for _, port in servers):
            options["port"] = ",".join(str(port or "") for _, port in servers)
    shown = ",".join(_shown(*server) for server in servers if not server[0].startswith("/"))
    return Address(parsed.set(query={}), options, ours, shown)


def _shown(host: str, port: int | None) -> str:
    host = f"[{host}]" if ":" in host else host
    return host if port is None else f"{host}:{port}"


def _servers(
    url: str, parsed: URL, hosts: list[str], query: dict[str, Any]
) -> list[tuple[str, int | None]]:
    """Return hosts and ports: those before the path, or those of the options, which are removed."""
    listed, ports = _split(query.pop("host", ())), _split(query.pop("port", ()))
    if listed and parsed.host:
        raise _refuse(url, "hosts in one place")
    hosts = hosts or listed
    if not hosts:
        return [(parsed.host, parsed.port)] if parsed.host else []
    if len(ports) not in (0, 1, len(hosts)):
        raise _refuse(url, "a port for each host, or one for all")
    servers = []
    for position, host in enumerate(hosts):
        server = _server(host, ports[position] if len(ports) > 1 else "".join(ports))
        if server is None:
            raise _refuse(url, "hosts as host:port between commas, with ports from 1 to 65535")
        servers.append(server)
    return servers


def _server(host: str, port: str) -> tuple[str, int | None] | None:
    number = _read("from 1 to 65535", port)
    if port and number is None:
        return None
    if host.startswith("/"):  # a directory of sockets
        return host, number
    parsed = _parsed(f"x://{host}/x")
    if parsed is None or not parsed.host or not 0 < (parsed.port or 1) < 65536:
        return None
    return parsed.host, number or parsed.port


def _split(value: str | Iterable[str]) -> list[str]:
    return ",".join([value] if isinstance(value, str) else value).split(",") if value else []


def _refuse(url: object, expected: str) -> exceptions.InvalidURL:
    return exceptions.InvalidURL("ledger URL", url, expected)
