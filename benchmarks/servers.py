"""Scratch databases, and generators that run in processes of their own.

Servers are found as the tests find them (``tests/databases.py``).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pathlib
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import sqlalchemy

from resource_objects.ledger import backend_for
from tests import databases

#: The databases that are measured, and their titles in the table.
TITLES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}


@contextlib.contextmanager
def database(kind: str) -> Iterator[str]:
    """Create an empty database, yield its URL, and drop it; on SQLite a path without a file."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = databases.Scratch(pathlib.Path(folder))
        url = scratch.create(kind)
        try:
            yield url
        finally:
            scratch.drop(url)


@contextlib.contextmanager
def ledger_database(kind: str) -> Iterator[str]:
    """Create a database with the schema of a ledger, yield its URL, and drop it."""
    with database(kind) as url:
        backend_for(url).upgrade_database(url)
        yield url


def reachable() -> list[str]:
    """Return the kinds of databases that can be measured, and print why another cannot.

    :raises Unreachable: if a server is required (``CI=true``)
    """
    kinds = []
    for kind in TITLES:
        try:
            if kind != "sqlite":
                databases.find_server(kind)
        except databases.Unreachable as error:
            if databases.required():
                raise
            print(f"not measured: {error}", file=sys.stderr)
        else:
            kinds.append(kind)
    return kinds


def analyze(url: str) -> None:
    """Let a database server update the statistics of its planner."""
    if not url.startswith(("sqlite", "memory")):
        with databases.connect(sqlalchemy.make_url(url)) as connection:
            connection.exec_driver_sql("ANALYZE")


def in_a_process(generator: Callable[..., Iterator[Any]], *args: Any) -> Iterator[Any]:
    """Yield the values of a module's generator function that runs in a new process.

    :raises RuntimeError: with the traceback of an error in that process
    """
    receiver, sender = multiprocessing.Pipe(duplex=False)
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=_send, args=(sender, generator, args))
    process.start()
    sender.close()
    while True:
        try:
            kind, value = receiver.recv()
        except EOFError:
            break
        if kind == "error":
            process.join()
            raise RuntimeError(value)
        yield value
    process.join()
    if process.exitcode:
        raise RuntimeError(f"{generator.__name__} ended with {process.exitcode}")


def _send(pipe: Connection, generator: Callable[..., Iterator[Any]], args: tuple[Any, ...]) -> None:
    try:
        for value in generator(*args):
            pipe.send(("value", value))
    except Exception:
        pipe.send(("error", traceback.format_exc()))
