"""The commands of a job: claim what it needs, run it, release."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions, names
from resource_objects.cli import request_arguments as arguments
from resource_objects.cli.base import (
    Age,
    Busy,
    Command,
    Lister,
    Many,
    Maybe,
    Misused,
    Refused,
    Text,
    add_actor,
    duration,
    expired_lines,
    misused,
)
from resource_objects.cli.consumer import (
    COLUMNS,
    add_environment,
    add_override,
    add_release_expired,
    add_whose,
    allocation_rows,
    request_again,
    whose,
)
from resource_objects.names import is_uuid

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger
    from resource_objects.providers import Claim
    from resource_objects.requests import Request
    from resource_objects.search import Candidates, Snapshot

# --- claim --------------------------------------------------------------------------------------


def _add_claim(parser: argparse.ArgumentParser) -> None:
    """Add the options of a new claim that `claim` and `run` share."""
    arguments.add_request(parser)
    arguments.add_search(parser)
    add = parser.add_argument
    add(
        "--wait",
        metavar="TIME",
        type=duration,
        help="if it is busy, wait for so long, such as 10m: first come, first served among those "
        "who wait for the same classes (`waiting` lists them)",
    )
    add_override(parser)
    add_whose(parser, "its {}")


class _Asked:
    """What is asked for whom: the request, how it is searched, how it is taken."""

    def __init__(self, said: argparse.Namespace, consumer: str) -> None:
        from resource_objects.providers.disabled import TRAIT

        with misused():
            self.consumer = names.consumer_name(consumer)
            if said.user is None and said.actor is not None:
                said.user = names.label(said.actor, "actor")
            try:
                parsed = arguments.parse_request(said)
            except Misused as error:
                if not hasattr(said, "consumer"):
                    raise
                expected = "CONSUMER and what it requests, such as job-1 VCPU=2"
                raise Misused(f"got {consumer!r} alone, expected {expected}") from error
            self.options = arguments.parse_search(said, parsed.limit)
        self.request = parsed.request
        if said.override_disabled:
            unnamed = self.request.unnamed
            required = unnamed.replace(required={*unnamed.required, TRAIT})
            self.request = self.request.replace(groups=(required, *self.request.named))
        self.at: str | None = said.at
        self.wait: datetime.timedelta | None = said.wait
        self.described = whose(said)
        self.override_disabled: bool = said.override_disabled
        self.replaces: bool = getattr(said, "replace", False)
        #: expired claims block no job and no claim that waits
        self.release_expired: bool = getattr(said, "release_expired", True) or said.wait is not None

    def search(self, ledger: Ledger, snapshot: Snapshot) -> Candidates:
        """Return the candidates on the hosts that the server group allows."""
        options, group = self.options, self.described["group"]
        if group is not None:
            from resource_objects.scheduler.pipeline import group_filters

            filters = group_filters(ledger, group, self.request, self.consumer)
            options = {**options, "filters": filters}
        with misused():
            return snapshot.candidates(self.request, **options)

    def release_expired_claims(self, ledger: Ledger) -> None:
        """Release the expired claims of other consumers, unless the queue does it."""
        if self.release_expired and self.wait is None:
            ledger.release_expired(tree=self.at, excluding=self.consumer)

    def take(self, ledger: Ledger, attempt: Callable[[], Claim]) -> Claim:
        """Take it.

        :raises Busy: if others hold it, or waited for it before
        :raises Refused: if nobody could give it, whoever gave back
        :raises AlreadyExists: if who asks holds something else already
        """
        try:
            with _ended_by_signals() if self.wait else contextlib.nullcontext():
                return attempt()
        except exceptions.CapacityException as refusal:
            if not self.replaces and next(ledger.consumers(name=self.consumer), None):
                raise exceptions.AlreadyExists("consumer", self.consumer) from refusal
            found = self.search(ledger, ledger.snapshot(self.at))
            option = "" if self.release_expired else "--release-expired"
            raise refused(ledger, self.consumer, found, refusal, option) from refusal


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let signals that end the process do it by an exception, as Ctrl-C does.

    So who waits leaves the queue, and those behind it need not wait for its lease.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: object) -> None:
    raise SystemExit(_SIGNALLED + number)


def refused(
    ledger: Ledger,
    consumer: str,
    found: Candidates,
    refusal: exceptions.CapacityException,
    option: str = "claim --release-expired",
) -> Refused:
    """Return the lines that report a refusal: not possible now, or not possible at all.

    :param option: the option that releases expired claims; empty if it was in use already
    """
    answer, lines = f"no capacity for {consumer} {found.request}", []
    last: exceptions.CapacityException | None = refusal
    if isinstance(refusal, exceptions.WaitTimedOut):
        answer = f"{consumer} waited in vain for {found.request}"
        if refusal.ahead:
            lines.append(f"before it in the queue: {', '.join(refusal.ahead)}")
        last = refusal.refusal
    if last is not None:
        told = last.explanation if isinstance(last, exceptions.NoCandidates) else last
        lines += str(told).splitlines()
        lines += expired_lines(ledger, last.reasons, option)
    is_busy = isinstance(refusal, exceptions.WaitTimedOut) or ledger.is_satisfiable(found)
    return (Busy if is_busy else Refused)(answer, lines)


class MakeClaim(Lister):
    """Allocate resources for a consumer on a host with enough of them.

    Prints the allocations. If no host has enough, prints the reasons of each host: with exit status
    75 if other consumers use the resources, 1 if the request does not fit even on empty hosts. The
    options of the request are those of `candidates`.
    """

    columns = COLUMNS
    nothing = "requests nothing"

    #: the claim that this call made
    _made: Claim | None = None

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("consumer", metavar="CONSUMER", help="the consumer: any name")
        _add_claim(parser)
        add = parser.add_argument
        add("--expires-in", metavar="TIME", type=duration, help="it may be released after this")
        again = parser.add_mutually_exclusive_group()
        again.add_argument(
            "--operation",
            metavar="UUID",
            help="an id: a repeated command with the same id happens once",
        )
        again.add_argument(
            "--replace",
            action="store_true",
            help="replace all its allocations; those of the same request stay where possible",
        )
        add_release_expired(parser)
        add_environment(parser)
        return parser

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Claim. A claim whose allocations were not printed is released again."""
        try:
            status = super().run(parsed_args)
            self.app.stdout.flush()
        except OSError:
            if self._made is not None:
                with self.open_ledger(parsed_args.actor) as ledger:
                    _release(ledger, self._made)
            raise
        return status

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Search and claim."""
        said = parsed_args
        if said.operation and not is_uuid(said.operation):
            raise Misused(f"--operation: got {said.operation!r}, expected a uuid")
        asked = _Asked(said, said.consumer)
        with self.open_ledger(said.actor) as ledger:
            if said.env and said.host is not None:
                ledger.provider(said.host)  # an unknown host is refused before anything is claimed
            done = asked.take(ledger, lambda: _claim(ledger, asked, said))
            if said.operation:
                _require_held(ledger, done, said.operation)
            elif not said.replace:  # else it may be of an earlier call
                self._made = done
            if not said.env:
                return COLUMNS, allocation_rows(done.consumer, done.allocations)
            from resource_objects.cli.environment import export_lines, read_environment

            try:
                found = read_environment(ledger, done, host=said.host)
            except exceptions.ResourceObjectsError:
                if self._made is not None:
                    _release(ledger, self._made)
                else:
                    self.app.stderr.write(f"resource-objects: claimed all the same: {done}\n")
                raise
            return (), Text([export_lines(found)])


def _require_held(ledger: Ledger, done: Claim, operation: str) -> None:
    """Raise an error if an operation's claim was released in the meantime.

    The caller would use resources that are not allocated to it.

    :raises NotFound: if the claim was released
    """
    held = next(ledger.consumers(name=done.consumer), None)
    if held is None or held.claim.id != done.id:
        detail = f"it gave back what {operation} claimed"
        raise exceptions.NotFound("consumer", done.consumer, detail)


def _claim(ledger: Ledger, asked: _Asked, said: argparse.Namespace) -> Claim:
    """Claim the requested resources, or return the claim of an earlier try."""
    kept = next(ledger.consumers(name=asked.consumer), None) if said.replace else None
    options = {
        **asked.described,
        "ignore_maintenance": asked.override_disabled,
        "wait": asked.wait,
    }
    asked.release_expired_claims(ledger)
    if kept is None:
        return ledger.claim(
            asked.consumer,
            asked.search(ledger, ledger.snapshot(asked.at)),
            expires_in=said.expires_in,
            operation=said.operation,
            **options,
        )
    done = kept.claim
    if not _is_held(ledger, asked):
        from resource_objects.ledger.feed import snapshot_in_place

        found = asked.search(ledger, snapshot_in_place(ledger.backend, asked.consumer, asked.at))
        done = ledger.replace(asked.consumer, found, generation=kept.generation, **options)
    if said.expires_in is not None:
        done = ledger.renew(asked.consumer, expires_in=said.expires_in, claim=done.id)
    return done


def _release(ledger: Ledger, claim: Claim) -> None:
    """Release a claim; not another one that its consumer may have by now.

    :raises NotFound: if it is not there any more
    """
    if ledger.get_claim(claim.consumer).id == claim.id:
        ledger.release(claim.consumer)


def _is_held(ledger: Ledger, asked: _Asked) -> bool:
    """Return True if a consumer has the requested amounts at the requested place."""
    try:
        if request_again(ledger, asked.consumer) != asked.request:
            return False
    except Refused:  # units that no request can say
        return False
    if asked.at is None:
        return True
    here = {one.name for one in ledger.provider(asked.at).walk()}
    return any(one.provider in here for one in ledger.get_claim(asked.consumer).allocations)


# --- waiting ------------------------------------------------------------------------------------


class ListWaiters(Lister):
    """List the waiting requests in the order of the queue.

    Requests that wait for a common resource class, in the same tree or in any tree, are served in
    order. A claim that does not wait may overtake them.
    """

    columns = ("#", "consumer", "waits for", "of", "since", "actor")
    nothing = "nobody waits"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument("--limit", metavar="N", type=int, help="the maximum number")
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Read them in their order."""
        with self.open_ledger() as ledger, misused():
            found = list(ledger.queue(limit=parsed_args.limit))
            roots = {each.root_uuid for one in found for each in one.awaits if each.root_uuid}
            named = {one.uuid: one.name for one in ledger.providers(uuid=sorted(roots))}
            now = ledger.now()
        return self.columns, [
            (
                place,
                one.consumer,
                str(one.amounts),
                Many(
                    sorted(
                        {named[each.root_uuid] for each in one.awaits if each.root_uuid in named}
                    )
                ),
                Age((one.since, now)),
                Maybe(one.actor),
            )
            for place, one in enumerate(found, 1)
        ]


# --- release ------------------------------------------------------------------------------------


class ReleaseConsumers(Lister):
    """Release all allocations of consumers: of one, of several, or of all consumers of a user.

    Releases all of them or none. Consumers of another user need --force, which protects against
    mistakes only. --expired releases all consumers whose claim has expired, of any user.
    """

    columns = COLUMNS
    nothing = "nothing was held"

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        add = parser.add_argument
        add("consumers", metavar="CONSUMER", nargs="*", help="who gives back")
        add("--user", metavar="NAME", help="all of this user, in place of names; none is no error")
        add("--expired", action="store_true", help="all whose time is over, in place of names")
        add("--force", action="store_true", help="also those of another user")
        return add_actor(parser)

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[Sequence[str], Iterable[Sequence[Any]]]:
        """Release the consumers and list the released allocations."""
        wanted = list(dict.fromkeys(parsed_args.consumers))
        user, me = parsed_args.user, parsed_args.actor
        which = {"names of consumers": wanted, "--user": user is not None}
        which["--expired"] = parsed_args.expired
        chosen = [word for word, is_chosen in which.items() if is_chosen]
        if len(chosen) != 1:
            got = f", got {' and '.join(chosen)}" if chosen else ""
            raise Misused(f"expected one of names of consumers, --user, --expired{got}")
        with self.open_ledger(me) as ledger:
            if parsed_args.expired:
                return COLUMNS, [row for claim in _all_expired(ledger) for row in _rows(claim)]
            if user is not None:
                found = list(ledger.consumers(user=user))
                wanted = [one.name for one in found]
            elif not parsed_args.force:
                found = list(ledger.consumers(name=wanted))
            others = [] if parsed_args.force else [
                f"{one.name} is of {one.user}" for one in found if one.user not in (None, me)
            ]  # fmt: skip
            if others:
                raise Refused("these are of another user, which needs --force", others)
            done = ledger.release_all(wanted) if wanted else ()
        return COLUMNS, [row for claim in done for row in _rows(claim)]


def _rows(claim: Claim) -> Iterable[Sequence[Any]]:
    return allocation_rows(claim.consumer, claim.allocations)


def _all_expired(ledger: Ledger) -> Iterator[Claim]:
    """Release what has expired, and yield it: page by page, each of them one transaction."""
    while done := ledger.release_expired():
        yield from done


# --- run ----------------------------------------------------------------------------------------

#: The exit statuses of shells for a program that cannot be executed or does not exist.
_CANNOT_RUN, _NOT_FOUND = 126, 127
#: A program that a signal ended has this, and the signal's number, as its status.
_SIGNALLED = 128
#: Signals that are forwarded to the program. A terminal sends its signals directly.
_FORWARDED = frozenset(
    {
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGALRM,
        signal.SIGWINCH,
    }
)
#: Seconds that a program has after SIGTERM, before SIGKILL.
_GRACE = 10.0
#: Seconds after which the program is checked without a signal.
_LOOK_EVERY = 1.0
#: prctl(2): the signal that a process gets when the one that started it is gone.
_PR_SET_PDEATHSIG = 1


class RunJob(Command):
    """Claim resources, run a program with the environment of a job, and release them at the end.

    The program runs on this machine, so the resources are searched on this machine unless --at
    names another one. Signals are forwarded to the program and its child processes. The claim
    expires and is renewed while the program runs: if this command is killed, the program gets
    SIGTERM, and other users may release the claim after --lease. The exit status is that of the
    program; 128 plus its number for a signal; 127 and 126 if the program does not exist or cannot
    be executed.
    """

    takes_program = True

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser of the arguments."""
        parser = super().get_parser(prog_name)
        parser.usage = f"{prog_name} [options] AMOUNTS -- PROGRAM [arguments]"
        _add_claim(parser)
        add = parser.add_argument
        add(
            "--name",
            metavar="CONSUMER",
            help="the consumer (default: a new name with your user name)",
        )
        add(
            "--lease",
            metavar="TIME",
            type=duration,
            default=datetime.timedelta(minutes=1),
            help="if this command is killed, others may have it after this (default: 1m)",
        )
        add(
            "--end-when-lost",
            action="store_true",
            help="end the program if its claim is released; default: only report it",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Claim, run, release."""
        from resource_objects.cli.environment import read_environment

        said = parsed_args
        asked = _Asked(said, said.name or _made_up(said.actor))
        with self.open_ledger(said.actor) as ledger:
            if asked.at is None and not _is_in_a_tree(asked.request):
                asked.at = _this_machine(ledger)
            asked.release_expired_claims(ledger)
            claim = asked.take(
                ledger,
                lambda: ledger.claim(
                    asked.consumer,
                    asked.search(ledger, ledger.snapshot(asked.at)),
                    expires_in=said.lease,
                    ignore_maintenance=asked.override_disabled,
                    wait=asked.wait,
                    **asked.described,
                ),
            )
            keeper = _Keeper(self, ledger, claim, said)
            try:
                variables = read_environment(ledger, claim)
                return keeper.run(said.program, {**os.environ, **variables})
            finally:
                keeper.release()


def _made_up(user: str | None) -> str:
    """Return an unused name."""
    return f"{user or os.getuid()}-{os.uname().nodename}-{uuid.uuid4().hex[:8]}"


def _is_in_a_tree(request: Request) -> bool:
    return any(group.in_tree for group in request.groups)


def _this_machine(ledger: Ledger) -> str:
    """Return the provider of this machine.

    :raises Misused: if the ledger has no provider of its name
    """
    name = os.uname().nodename
    for known in dict.fromkeys((name, name.partition(".")[0])):
        if next(ledger.providers(name=known), None) is not None:
            return known
    raise Misused(f"this machine, {name}, is no provider of the ledger; say --at PROVIDER")


class _Keeper:
    """Renews a claim while a program runs."""

    def __init__(
        self, command: Command, ledger: Ledger, claim: Claim, said: argparse.Namespace
    ) -> None:
        self._command = command
        self._ledger = ledger
        self._claim = claim
        self._said = said
        self._is_lost = False
        self._child: subprocess.Popen[bytes] | None = None
        self._ended = threading.Event()

    def run(self, program: Sequence[str], environ: dict[str, str]) -> int:
        """Run a program with its lease renewed; return its status."""
        from resource_objects.ledger.lease import Lease

        expires_in = self._said.lease
        with _Signals() as signals:
            try:
                self._child = child = signals.start(program, environ)
            except OSError as error:
                self._tell(f"{program[0]}: {error.strerror}")
                return _NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_RUN
            with Lease(
                self._ledger,
                self._claim,
                expires_in=expires_in,
                lost=self._on_lost,
                failed=self._on_failed,
            ):
                status = signals.wait(child)
                self._ended.set()
        return _SIGNALLED - status if status < 0 else status

    def release(self) -> None:
        """Release the claim, if it is still there."""
        if self._is_lost:
            return
        try:
            _release(self._ledger, self._claim)
        except exceptions.ResourceObjectsError as error:
            if error.matches("ConsumerNotFound"):
                self._tell(f"the claim of {self._claim.consumer} was released by another user")
            else:
                self._tell(f"not released, others may have it after {self._said.lease}: {error}")

    def _on_lost(self, error: exceptions.ResourceObjectsError) -> None:
        self._is_lost = True
        ends = self._said.end_when_lost
        then = "the program is ended" if ends else "others may take what the program uses"
        self._tell(f"the claim is lost, {then}: {error}")
        if ends:
            self._signal(signal.SIGTERM)
            if not self._ended.wait(_GRACE):
                self._signal(signal.SIGKILL)

    def _on_failed(self, error: exceptions.ResourceObjectsError) -> None:
        self._tell(f"not renewed, tried again: {error}")

    def _signal(self, number: int) -> None:
        if self._child is not None and not self._ended.is_set():
            _kill_group(self._child.pid, number)

    def _tell(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the reader has closed the output
            self._command.app.stderr.write(f"resource-objects: {text}\n")
            self._command.app.stderr.flush()


def _kill_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


class _Signals:
    """Starts a program in a process group of its own, and hands signals on to that.

    They are blocked here and fetched one by one (sigwaitinfo), so none interrupts a write to the
    ledger, and none is lost between the claim and the start of the program. Where there is a
    terminal the program gets it, as a shell would give it, and what is typed goes to the program
    alone; if it is stopped (Ctrl-Z), so is this process, and both go on together.
    """

    def __init__(self) -> None:
        self._terminal: int | None = None
        self._mask: set[signal.Signals | int] = set()

    def __enter__(self) -> _Signals:
        # ignored signals are not queued, and without SIGCHLD the end is not reported
        self._before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        blocked = {*_FORWARDED, signal.SIGCHLD, signal.SIGTTOU}
        self._mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, blocked))
        self._terminal = _terminal()
        return self

    def __exit__(self, *error: object) -> None:
        self._give_terminal(os.getpgrp())
        while signal.sigtimedwait([*_FORWARDED, signal.SIGCHLD], 0) is not None:
            pass  # it came after the end of the program, or is the end of it
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        signal.signal(signal.SIGCHLD, self._before)

    def start(self, program: Sequence[str], environ: dict[str, str]) -> subprocess.Popen[bytes]:
        """Start the program.

        :raises OSError: if it cannot be run
        """
        die_with_parent = _dying_with_parent()
        mask, terminal, parent = self._mask, self._terminal, os.getpid()

        def prepare() -> None:
            if terminal is not None:
                os.tcsetpgrp(terminal, os.getpid())
            die_with_parent()
            if os.getppid() != parent:
                os._exit(_SIGNALLED + signal.SIGTERM)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

        sys.stdout.flush()
        try:
            return subprocess.Popen(
                program,
                env=environ,
                preexec_fn=prepare,  # there is no other thread yet
                process_group=0,
            )
        except ValueError as error:  # a null byte
            raise OSError(0, str(error)) from error

    def wait(self, child: subprocess.Popen[bytes]) -> int:
        """Hand signals on until the program ends; return its status, negative for a signal."""
        while True:
            # another thread may receive the signal and ignore it
            came = signal.sigtimedwait([*_FORWARDED, signal.SIGCHLD], _LOOK_EVERY)
            if came is not None and came.si_signo != signal.SIGCHLD:
                _kill_group(child.pid, came.si_signo)
                continue
            pid, status = os.waitpid(child.pid, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                self._stop_with(child.pid)
            elif pid:
                child.returncode = os.waitstatus_to_exitcode(status)
                return child.returncode

    def _stop_with(self, group: int) -> None:
        """Stop as the program did; when this process continues, let the program continue."""
        if self._terminal is None:
            return  # the process that stopped it continues it
        self._give_terminal(os.getpgrp())
        os.kill(os.getpid(), signal.SIGSTOP)
        self._give_terminal(group)
        _kill_group(group, signal.SIGCONT)

    def _give_terminal(self, group: int) -> None:
        if self._terminal is not None:
            with contextlib.suppress(OSError):  # it was closed
                os.tcsetpgrp(self._terminal, group)


def _terminal() -> int | None:
    """Return the descriptor of the terminal, if this process is in its foreground."""
    with contextlib.suppress(OSError, ValueError):
        if os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp():
            return 0
    return None


def _dying_with_parent() -> Callable[[], object]:
    """Return a function after which a process gets SIGTERM when its parent is gone."""
    if sys.platform != "linux":
        return lambda: None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
