"""The command in processes that are forked from one which has the library imported already.

Starting Python and importing takes a second of a processor, and most tests that need a process are
about what it does afterwards. That the command starts is shown by those that start it as a person
does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import IO

from resource_objects.testing.conformance.races import processes

#: What a process is: it is given the arguments, and returns the status that it ends with.
Main = Callable[[Sequence[str]], int | None]


class Program:
    """A running ``resource-objects``, used as :class:`subprocess.Popen` is.

    :param main: what is run instead of the command
    """

    def __init__(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str],
        folder: str,
        interruptible: bool,
        main: Main | None = None,
    ) -> None:
        context = processes()
        ends = [context.Pipe(duplex=False) for _ in range(2)]
        theirs = [end for _, end in ends]
        self.stdout, self.stderr = (_text(end) for end, _ in ends)
        argument = (*theirs, list(argv), dict(environ), folder, interruptible, main)
        self._process = context.Process(target=_main, args=argument)
        self._process.start()
        for end in theirs:
            end.close()

    @property
    def returncode(self) -> int | None:
        """The exit status, None while the program runs."""
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        """Wait until it has ended; return how."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("resource-objects", timeout)
        return self.returncode

    def communicate(self, timeout: float = 60) -> tuple[str, str]:
        """Wait until it has ended; return what it and its program wrote."""
        reading = ThreadPoolExecutor(2)
        try:
            text: list[Future[str]] = [
                reading.submit(stream.read) for stream in (self.stdout, self.stderr)
            ]
            out, err = (item.result(timeout) for item in text)
        finally:
            reading.shutdown(wait=False)
        self.wait(timeout)
        return out, err

    @property
    def pid(self) -> int:
        """The number of its process."""
        assert self._process.pid is not None
        return self._process.pid

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """Send it SIGKILL."""
        self._process.kill()

    def close(self) -> None:
        """End it, if it runs."""
        self.kill()
        self._process.join()
        for stream in (self.stdout, self.stderr):
            stream.close()


def _text(end: Connection) -> IO[str]:
    stream = os.fdopen(os.dup(end.fileno()), encoding="utf-8")
    end.close()
    return stream


def _main(
    out: Connection,
    err: Connection,
    argv: list[str],
    environ: dict[str, str],
    folder: str,
    interruptible: bool,
    main: Main | None,
) -> None:
    """Be the command."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for argument, number in ((nothing, 0), (out.fileno(), 1), (err.fileno(), 2)):
        os.dup2(argument, number)
    os.close(nothing)
    out.close()
    err.close()
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding="utf-8", closefd=False)
        for number, mode in enumerate(("r", "w", "w"))
    )
    if "PYTHONUNBUFFERED" in environ:
        sys.stdout.reconfigure(line_buffering=True)
    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # who runs the tests may ignore it: nohup
    warnings.simplefilter("error")
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    sys.argv = ["resource-objects", *argv]
    if main is None:
        from resource_objects.cli.main import main

    sys.exit(main(argv))
