"""Database servers of a test's own, to be killed: made in a scratch directory, on a free port.

They run as the current user; root, whom the servers refuse to run as, hands them to the users that
their packages made. Programs are looked for where Debian puts them, too.
"""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy.pool import NullPool

#: Seconds that a server may take to come up, also after a crash.
PATIENCE = 60


class Missing(Exception):
    """A program is not installed; the message names it."""


class PrivateServer:
    """A server that is up, until it is killed or stopped."""

    def __init__(self, folder: Path, user: str, command: list[str], admin: str) -> None:
        self.admin = admin  #: the SQLAlchemy URL of its administrator
        self._folder, self._user, self._command = folder, user, command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Bring it up and wait until it answers."""
        self.begin()
        assert self._process is not None
        patience = time.monotonic() + PATIENCE
        while not self._answers():
            if time.monotonic() > patience or self._process.poll() is not None:
                raise RuntimeError((self._folder / "server.log").read_text()[-2000:])
            time.sleep(0.1)

    def begin(self) -> None:
        """Bring it up without waiting for an answer."""
        with open(self._folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # with a process group of its own, to be killed whole
                cwd=self._folder,
                **_as(self._user),
            )

    def _answers(self) -> bool:
        engine = sqlalchemy.create_engine(self.admin, poolclass=NullPool)
        try:
            with engine.connect() as connection:
                connection.exec_driver_sql("SELECT 1")
        except sqlalchemy.exc.DBAPIError:
            return False
        return True

    def kill(self) -> None:
        """Kill all its processes where they are."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def tell(self, number: signal.Signals) -> None:
        """Send a signal to the server's first process, which tells the others.

        PostgreSQL shuts down smartly (new clients are refused, those there are waited for) at
        SIGTERM, and fast (they are thrown out) at SIGINT; MariaDB fast at SIGTERM.
        """
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> None:
        """Wait until it has ended by itself."""
        assert self._process is not None
        self._process.wait(PATIENCE)
        self._process = None

    def put(self, name: str, text: str = "") -> None:
        """Write a file into its data, or over the one of that name."""
        path = self._folder / "data" / name
        path.write_text(text)
        _owner(path, self._user)

    def crash(self) -> None:
        """Kill it and bring it up again."""
        self.kill()
        self.start()


@contextlib.contextmanager
def private_server(kind: str) -> Iterator[PrivateServer]:
    """Make a server, bring it up, and remove every trace of it in the end.

    :raises Missing: if it is not installed
    """
    folder = Path(tempfile.mkdtemp(prefix=f"ro_test_{kind}_"))
    try:
        server = _MAKE[kind](folder)
        try:
            server.start()
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def pooler(server: PrivateServer) -> Iterator[str]:
    """Run PgBouncer in transaction mode before a PostgreSQL server; yield its administrator's URL.

    It has fewer connections than the tests have clients, so that they take turns on each.

    :raises Missing: if it is not installed
    """
    folder = Path(tempfile.mkdtemp(prefix="ro_test_pooler_"))
    try:
        program, user, port = (
            _program("pgbouncer", "/usr/sbin"),
            _owner(folder, "postgres"),
            _free_port(),
        )
        behind = sqlalchemy.make_url(server.admin)
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": port,
            "unix_socket_dir": folder,
            "auth_type": "any",
            "pool_mode": "transaction",
            "default_pool_size": 3,
        }
        (folder / "pgbouncer.ini").write_text(
            f"[databases]\n* = host={behind.host} port={behind.port} user={behind.username}\n"
            + "[pgbouncer]\n"
            + "".join(f"{name} = {value}\n" for name, value in settings.items())
        )
        url = behind.set(port=port).render_as_string(hide_password=False)
        made = PrivateServer(folder, user, [program, str(folder / "pgbouncer.ini")], url)
        try:
            made.start()
            yield url
        finally:
            made.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _postgresql(folder: Path) -> PrivateServer:
    user, data, port = _owner(folder, "postgres"), folder / "data", _free_port()
    made = ["-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale"]
    _run([_program("initdb", _POSTGRESQL), *made], folder, user)
    return _postgres(folder, user, data, port)


_POSTGRESQL = "/usr/lib/postgresql/*/bin"


def _postgres(folder: Path, user: str, data: Path, port: int) -> PrivateServer:
    settings = {
        "port": port,
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": folder,
    }
    command = [_program("postgres", _POSTGRESQL), "-D", str(data)]
    command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    admin = f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres?connect_timeout=5"
    return PrivateServer(folder, user, command, admin)


@contextlib.contextmanager
def standby(primary: PrivateServer) -> Iterator[PrivateServer]:
    """Run a PostgreSQL server that follows another one, which does not wait for it."""
    folder = Path(tempfile.mkdtemp(prefix="ro_test_standby_"))
    try:
        user, data, port = _owner(folder, "postgres"), folder / "data", _free_port()
        of = sqlalchemy.make_url(primary.admin)
        where = ["-h", str(of.host), "-p", str(of.port), "-U", str(of.username)]
        copy = _program("pg_basebackup", _POSTGRESQL)
        _run([copy, *where, "-D", str(data), "-R", "--checkpoint=fast"], folder, user)
        made = _postgres(folder, user, data, port)
        try:
            made.start()
            yield made
        finally:
            made.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _mysql(folder: Path, *options: str) -> PrivateServer:
    user, data, port = _owner(folder, "mysql"), folder / "data", _free_port()
    made = ["--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal"]
    _run([_program("mariadb-install-db"), *made, "--skip-test-db"], folder, user)
    command = [
        _program("mariadbd", "/usr/sbin"),
        "--no-defaults",
        f"--datadir={data}",
        f"--port={port}",
        "--bind-address=127.0.0.1",
        f"--socket={folder}/socket",
        f"--pid-file={folder}/pid",
        *options,
    ]
    admin = f"mysql+pymysql://root@127.0.0.1:{port}/mysql?connect_timeout=5"
    return PrivateServer(folder, user, command, admin)


@contextlib.contextmanager
def galera(nodes: int = 2) -> Iterator[list[PrivateServer]]:
    """Make a Galera cluster of MariaDB servers, bring it up, and remove it in the end.

    :raises Missing: if it is not installed
    """
    provider = "/usr/lib/galera/libgalera_smm.so"
    if not os.path.exists(provider):
        raise Missing(f"{provider} is not installed")
    with contextlib.ExitStack() as made:
        first: int | None = None
        servers = []
        for number in range(nodes):
            folder = Path(tempfile.mkdtemp(prefix="ro_test_galera_"))
            made.callback(shutil.rmtree, folder, ignore_errors=True)
            group, changes, state = (_free_port() for _ in range(3))
            cluster = "" if first is None else f"127.0.0.1:{first}"
            first = first or group
            server = _mysql(
                folder,
                "--wsrep-on=ON",
                f"--wsrep-provider={provider}",
                f"--wsrep-cluster-address=gcomm://{cluster}",
                f"--wsrep-node-name=node{number}",
                "--wsrep-node-address=127.0.0.1",
                "--wsrep-sst-method=rsync",
                f"--wsrep-sst-receive-address=127.0.0.1:{state}",
                f"--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{group};"
                f"ist.recv_addr=127.0.0.1:{changes};gcache.size=16M",
                "--binlog-format=ROW",
                "--innodb-autoinc-lock-mode=2",
                *(["--wsrep-new-cluster"] if number == 0 else []),
            )
            made.callback(server.kill)
            server.start()
            servers.append(server)
        yield servers


_MAKE = {"postgresql": _postgresql, "mysql": _mysql}


def _owner(folder: Path, user: str) -> str:
    """Give a directory to whom the server will run as; return its name."""
    if os.getuid() != 0:
        return pwd.getpwuid(os.getuid()).pw_name
    try:
        shutil.chown(folder, user)
    except LookupError as error:
        raise Missing(f"there is no user {user}, and root may not run its server") from error
    return user


def _as(user: str) -> dict[str, Any]:
    """Return what makes ``subprocess`` run something as a user, where it is another."""
    if os.getuid() != 0:
        return {}
    found = pwd.getpwnam(user)
    return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}


def run_client(name: str, url: str, *arguments: str, said: bytes = b"") -> bytes:
    """Run a program that comes with a server on the database of a URL; return what it says.

    :raises Missing: if it is not installed
    """
    parsed = sqlalchemy.make_url(url)
    is_mysql = parsed.get_backend_name() == "mysql"
    where = {
        "host": parsed.host or parsed.query.get("host"),
        "port": parsed.port or parsed.query.get("port"),
        "user" if is_mysql else "username": parsed.username,
        "socket": parsed.query.get("unix_socket"),
    }
    options = [f"--{option}={value}" for option, value in where.items() if value]
    place = [] if is_mysql else ["--dbname"]
    command = [_program(name, _POSTGRESQL), *options, *arguments, *place, str(parsed.database)]
    secret = {"PGPASSWORD": parsed.password, "MYSQL_PWD": parsed.password}
    environ = {**os.environ, **{name: value for name, value in secret.items() if value}}
    ran = subprocess.run(command, input=said, capture_output=True, env=environ)
    if ran.returncode != 0:
        raise RuntimeError(f"{command[0]}: {ran.stderr[-1000:]!r}")
    return ran.stdout


def _program(name: str, *folders: str) -> str:
    places = [os.environ.get("PATH", ""), *(found for one in folders for found in glob.glob(one))]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        raise Missing(f"{name} is not installed")
    return found


def _run(command: list[str], folder: Path, user: str) -> None:
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, **_as(user))
    if ran.returncode != 0:
        raise RuntimeError(f"{command[0]}: {ran.stdout[-1000:]}{ran.stderr[-1000:]}")


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
