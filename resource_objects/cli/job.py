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
    Table,
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
    owner_of,
    request_again,
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


class _ClaimRequest:
    """The request of a new claim, with the options of its search and of the claim."""

    def __init__(self, parsed_args: argparse.Namespace, consumer: str) -> None:
        from resource_objects.providers.disabled import TRAIT

        with misused():
            self.consumer = names.consumer_name(consumer)
            if parsed_args.user is None and parsed_args.actor is not None:
                parsed_args.user = names.label(parsed_args.actor, "actor")
            try:
                parsed = arguments.parse_request(parsed_args)
            except Misused as error:
                if not hasattr(parsed_args, "consumer"):
                    raise
                expected = "CONSUMER and what it requests, such as job-1 VCPU=2"
                raise Misused(f"got {consumer!r} alone, expected {expected}") from error
            self.options = arguments.parse_search(parsed_args, parsed.limit)
        self.request = parsed.request
        if parsed_args.override_disabled:
            unnamed = self.request.unnamed
            required = unnamed.replace(required={*unnamed.required, TRAIT})
            self.request = self.request.replace(groups=(required, *self.request.named))
        self.at: str | None = parsed_args.at
        self.wait: datetime.timedelta | None = parsed_args.wait
        self.described = owner_of(parsed_args)
        self.override_disabled: bool = parsed_args.override_disabled
        self.replaces: bool = getattr(parsed_args, "replace", False)
        #: expired claims block no job and no claim that waits
        self.release_expired: bool = (
            getattr(parsed_args, "release_expired", True) or parsed_args.wait is not None
        )

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
        """Allocate the request.

        :raises Busy: if other consumers use the resources, or waited for them before
        :raises Refused: if no host fits even when it is empty
        :raises AlreadyExists: if the consumer has other allocations
        """
        try:
            with _ended_by_signals() if self.wait else contextlib.nullcontext():
                return attempt()
        except exceptions.CapacityException as refusal:
            if not self.replaces and next(ledger.consumers(name=self.consumer), None):
                raise exceptions.AlreadyExists("consumer", self.consumer) from refusal
            candidates = self.search(ledger, ledger.snapshot(self.at))
            option = "" if self.release_expired else "--release-expired"
            raise refused(ledger, self.consumer, candidates, refusal, option) from refusal


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
    candidates: Candidates,
    refusal: exceptions.CapacityException,
    option: str = "claim --release-expired",
) -> Refused:
    """Return the lines that report a refusal: not possible now, or not possible at all.

    :param option: the option that releases expired claims; empty if it was in use already
    """
    answer, lines = f"no capacity for {consumer} {candidates.request}", []
    last: exceptions.CapacityException | None = refusal
    if isinstance(refusal, exceptions.WaitTimedOut):
        answer = f"{consumer} waited in vain for {candidates.request}"
        if refusal.ahead:
            lines.append(f"before it in the queue: {', '.join(refusal.ahead)}")
        last = refusal.refusal
    if last is not None:
        explanation = last.explanation if isinstance(last, exceptions.NoCandidates) else last
        lines += str(explanation).splitlines()
        lines += expired_lines(ledger, last.reasons, option)
    is_busy = isinstance(refusal, exceptions.WaitTimedOut) or ledger.is_satisfiable(candidates)
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
    _unreported: Claim | None = None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
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

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Claim. A claim whose allocations were not printed is released again."""
        try:
            status = super().run(parsed_args)
            self.app.stdout.flush()
        except OSError:
            if self._unreported is not None:
                with self.open_ledger(parsed_args.actor) as ledger:
                    _release(ledger, self._unreported)
            raise
        return status

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Search and claim."""
        if parsed_args.operation and not is_uuid(parsed_args.operation):
            raise Misused(f"--operation: got {parsed_args.operation!r}, expected a uuid")
        claim_request = _ClaimRequest(parsed_args, parsed_args.consumer)
        with self.open_ledger(parsed_args.actor) as ledger:
            if parsed_args.env and parsed_args.host is not None:
                ledger.provider(
                    parsed_args.host
                )  # an unknown host is refused before anything is claimed
            done = claim_request.take(ledger, lambda: _claim(ledger, claim_request, parsed_args))
            if parsed_args.operation:
                _require_held(ledger, done, parsed_args.operation)
            elif not parsed_args.replace:  # else it may be of an earlier call
                self._unreported = done
            if not parsed_args.env:
                return COLUMNS, allocation_rows(done.consumer, done.allocations)
            from resource_objects.cli.environment import export_lines, read_environment

            try:
                variables = read_environment(ledger, done, host=parsed_args.host)
            except exceptions.ResourceObjectsError:
                if self._unreported is not None:
                    _release(ledger, self._unreported)
                else:
                    self.app.stderr.write(f"resource-objects: claimed all the same: {done}\n")
                raise
            return (), Text([export_lines(variables)])


def _require_held(ledger: Ledger, done: Claim, operation: str) -> None:
    """Raise an error if an operation's claim was released in the meantime.

    The caller would use resources that are not allocated to it.

    :raises NotFound: if the claim was released
    """
    consumer = next(ledger.consumers(name=done.consumer), None)
    if consumer is None or consumer.claim.id != done.id:
        detail = f"it gave back what {operation} claimed"
        raise exceptions.NotFound("consumer", done.consumer, detail)


def _claim(ledger: Ledger, claim_request: _ClaimRequest, parsed_args: argparse.Namespace) -> Claim:
    """Claim the requested resources, or return the claim of an earlier try."""
    consumer = (
        next(ledger.consumers(name=claim_request.consumer), None) if parsed_args.replace else None
    )
    options = {
        **claim_request.described,
        "ignore_maintenance": claim_request.override_disabled,
        "wait": claim_request.wait,
    }
    claim_request.release_expired_claims(ledger)
    if consumer is None:
        return ledger.claim(
            claim_request.consumer,
            claim_request.search(ledger, ledger.snapshot(claim_request.at)),
            expires_in=parsed_args.expires_in,
            operation=parsed_args.operation,
            **options,
        )
    done = consumer.claim
    if not _is_held(ledger, claim_request):
        from resource_objects.ledger.feed import snapshot_in_place

        candidates = claim_request.search(
            ledger, snapshot_in_place(ledger.backend, claim_request.consumer, claim_request.at)
        )
        done = ledger.replace(
            claim_request.consumer, candidates, generation=consumer.generation, **options
        )
    if parsed_args.expires_in is not None:
        done = ledger.renew(
            claim_request.consumer, expires_in=parsed_args.expires_in, claim=done.id
        )
    return done


def _release(ledger: Ledger, claim: Claim) -> None:
    """Release a claim; not another one that its consumer may have by now.

    :raises NotFound: if it is not there any more
    """
    if ledger.get_claim(claim.consumer).id == claim.id:
        ledger.release(claim.consumer)


def _is_held(ledger: Ledger, claim_request: _ClaimRequest) -> bool:
    """Return True if a consumer has the requested amounts at the requested place."""
    try:
        if request_again(ledger, claim_request.consumer) != claim_request.request:
            return False
    except Refused:  # units that no request can say
        return False
    if claim_request.at is None:
        return True
    here = {entry.name for entry in ledger.provider(claim_request.at).walk()}
    return any(
        entry.provider in here for entry in ledger.get_claim(claim_request.consumer).allocations
    )


# --- waiting ------------------------------------------------------------------------------------


class ListWaiters(Lister):
    """List the waiting requests in the order of the queue.

    Requests that wait for a common resource class, in the same tree or in any tree, are served in
    order. A claim that does not wait may overtake them.
    """

    columns = ("#", "consumer", "waits for", "of", "since", "actor")
    nothing = "nobody waits"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--limit", metavar="N", type=int, help="the maximum number")

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Read them in their order."""
        with self.open_ledger() as ledger, misused():
            waiting = list(ledger.queue(limit=parsed_args.limit))
            roots = {
                awaited.root_uuid
                for entry in waiting
                for awaited in entry.awaits
                if awaited.root_uuid
            }
            named = {entry.uuid: entry.name for entry in ledger.providers(uuid=sorted(roots))}
            now = ledger.now()
        return self.columns, [
            (
                place,
                entry.consumer,
                str(entry.amounts),
                Many(
                    sorted(
                        {
                            named[awaited.root_uuid]
                            for awaited in entry.awaits
                            if awaited.root_uuid in named
                        }
                    )
                ),
                Age((entry.since, now)),
                Maybe(entry.actor),
            )
            for place, entry in enumerate(waiting, 1)
        ]


# --- release ------------------------------------------------------------------------------------


class ReleaseConsumers(Lister):
    """Release all allocations of consumers: of one, of several, or of all consumers of a user.

    Releases all of them or none. Consumers of another user need --force, which protects against
    mistakes only. --expired releases all consumers whose claim has expired, of any user.
    """

    columns = COLUMNS
    nothing = "nothing was held"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("consumers", metavar="CONSUMER", nargs="*", help="who gives back")
        add("--user", metavar="NAME", help="all of this user, in place of names; none is no error")
        add("--expired", action="store_true", help="all whose time is over, in place of names")
        add("--force", action="store_true", help="also those of another user")
        add_actor(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Release the consumers and list the released allocations."""
        names = list(dict.fromkeys(parsed_args.consumers))
        user, me = parsed_args.user, parsed_args.actor
        selections = {"names of consumers": names, "--user": user is not None}
        selections["--expired"] = parsed_args.expired
        chosen = [word for word, is_chosen in selections.items() if is_chosen]
        if len(chosen) != 1:
            got = f", got {' and '.join(chosen)}" if chosen else ""
            raise Misused(f"expected one of names of consumers, --user, --expired{got}")
        with self.open_ledger(me) as ledger:
            if parsed_args.expired:
                return COLUMNS, [row for claim in _all_expired(ledger) for row in _rows(claim)]
            if user is not None:
                consumers = list(ledger.consumers(user=user))
                names = [consumer.name for consumer in consumers]
            elif not parsed_args.force:
                consumers = list(ledger.consumers(name=names))
            of_other_users = [
                f"{consumer.name} is of {consumer.user}"
                for consumer in ([] if parsed_args.force else consumers)
                if consumer.user not in (None, me)
            ]
            if of_other_users:
                raise Refused("these are of another user, which needs --force", of_other_users)
            done = ledger.release_all(names) if names else ()
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

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = f"{parser.prog} [options] AMOUNTS -- PROGRAM [arguments]"
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

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        """Claim, run, release."""
        from resource_objects.cli.environment import read_environment

        claim_request = _ClaimRequest(parsed_args, parsed_args.name or _made_up(parsed_args.actor))
        with self.open_ledger(parsed_args.actor) as ledger:
            if claim_request.at is None and not _is_in_a_tree(claim_request.request):
                claim_request.at = _this_machine(ledger)
            claim_request.release_expired_claims(ledger)
            claim = claim_request.take(
                ledger,
                lambda: ledger.claim(
                    claim_request.consumer,
                    claim_request.search(ledger, ledger.snapshot(claim_request.at)),
                    expires_in=parsed_args.lease,
                    ignore_maintenance=claim_request.override_disabled,
                    wait=claim_request.wait,
                    **claim_request.described,
                ),
            )
            keeper = _Keeper(self, ledger, claim, parsed_args)
            try:
                variables = read_environment(ledger, claim)
                return keeper.run(parsed_args.program, {**os.environ, **variables})
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
    for candidate in dict.fromkeys((name, name.partition(".")[0])):
        if next(ledger.providers(name=candidate), None) is not None:
            return candidate
    raise Misused(f"this machine, {name}, is no provider of the ledger; say --at PROVIDER")


class _Keeper:
    """Renews a claim while a program runs."""

    def __init__(
        self, command: Command, ledger: Ledger, claim: Claim, parsed_args: argparse.Namespace
    ) -> None:
        self._command = command
        self._ledger = ledger
        self._claim = claim
        self._parsed_args = parsed_args
        self._is_lost = False
        self._child: subprocess.Popen[bytes] | None = None
        self._ended = threading.Event()

    def run(self, program: Sequence[str], environ: dict[str, str]) -> int:
        """Run a program with its lease renewed; return its status."""
        from resource_objects.ledger.lease import Lease

        expires_in = self._parsed_args.lease
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
                self._tell(
                    f"not released, others may have it after {self._parsed_args.lease}: {error}"
                )

    def _on_lost(self, error: exceptions.ResourceObjectsError) -> None:
        self._is_lost = True
        ends = self._parsed_args.end_when_lost
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
    """Starts a program in its own process group, and forwards signals to it.

    Signals are blocked in this process and fetched one at a time (sigwaitinfo), so that none
    interrupts a write to the ledger or is lost between the claim and the start of the program. The
    program gets the terminal, if there is one, as from a shell, and all input. If the program is
    stopped (Ctrl-Z), this process stops too, and both continue together.
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
