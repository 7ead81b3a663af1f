"""Databases for both sides, processes of their own, and what a durable write costs here.

A server is found, and a database made and dropped, as the tests do (``tests/databases.py``).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pathlib
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import sqlalchemy

from benchmarks.measure import Row
from tests import databases

#: The databases that both sides are measured on.
KINDS = ("sqlite", "postgresql")
SHOWN = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}


@contextlib.contextmanager
def database(kind: str) -> Iterator[str]:
    """Lend an empty database; a file that is not there yet, for SQLite."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = databases.Scratch(pathlib.Path(folder))
        url = scratch.create(kind)
        try:
            yield url
        finally:
            scratch.drop(url)


def reachable() -> list[str]:
    """Return the kinds that can be measured; say which cannot, and why."""
    found = []
    for kind in KINDS:
        try:
            if kind != "sqlite":
                databases.find_server(kind)
        except databases.Unreachable as error:
            if databases.required():
                raise
            print(f"not measured: {error}", file=sys.stderr)
        else:
            found.append(kind)
    return found


def in_a_process(part: Callable[..., Iterator[Any]], *args: Any) -> Iterator[Any]:
    """Yield what a generator function of a module yields, run in a new process."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=_send, args=(theirs, part, args))
    process.start()
    theirs.close()
    while True:
        try:
            kind, value = ours.recv()
        except EOFError:
            break
        if kind == "error":
            process.join()
            raise RuntimeError(value)
        yield value
    process.join()
    if process.exitcode:
        raise RuntimeError(f"{part.__name__} ended with {process.exitcode}")


def _send(pipe: Connection, part: Callable[..., Iterator[Any]], args: tuple[Any, ...]) -> None:
    try:
        for value in part(*args):
            pipe.send(("value", value))
    except Exception:
        pipe.send(("error", traceback.format_exc()))


def flushes(kind: str, url: str) -> Iterator[Row]:
    """Yield what the smallest durable write costs: of the disk, and of a server."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield Row("disk: one flush of 4 KiB", "ms", flush(pathlib.Path(folder)) * 1000)
        return
    with databases.connect(sqlalchemy.make_url(url)) as connection:
        connection.exec_driver_sql("CREATE TABLE tiny (number INTEGER)")
        one = _median(lambda: connection.exec_driver_sql("INSERT INTO tiny VALUES (1)"))
        nothing = _median(lambda: connection.exec_driver_sql("SELECT 1"))
        connection.exec_driver_sql("DROP TABLE tiny")
        version = connection.exec_driver_sql("SHOW server_version").scalar()
    shown = f"{SHOWN[kind]} {str(version).split()[0]}"
    yield Row(f"{shown}: one row inserted and committed", "ms", one * 1000)
    yield Row(f"{shown}: one round trip", "ms", nothing * 1000)


def analyze(url: str) -> None:
    """Have a server's database look at what is in its tables."""
    with databases.connect(sqlalchemy.make_url(url)) as connection:
        connection.exec_driver_sql("ANALYZE")


def flush(folder: pathlib.Path) -> float:
    """Return the seconds one small write and fsync takes here."""
    with open(folder / "flush", "wb") as file:

        def once() -> None:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())

        return _median(once)


def _median(once: Callable[[], Any], count: int = 100) -> float:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        once()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
