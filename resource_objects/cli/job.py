"""The commands of a job: claim what it needs, run it, release."""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import subprocess
import sys
import threading
import uuid
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions, names
from resource_objects.cli import base
from resource_objects.cli.consumer import (
    COLUMNS,
    ENVIRONMENT,
    RELEASE_EXPIRED,
    allocation_rows,
    environment_text,
    on_disabled_only,
    override,
    owner,
    owner_of,
    request_again,
)
from resource_objects.cli.request_arguments import REQUEST, SEARCH, parse_request, parse_search
from resource_objects.names import is_uuid

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger
    from resource_objects.providers import Claim
    from resource_objects.requests import Request
    from resource_objects.search import Candidates, Snapshot

# --- claim --------------------------------------------------------------------------------------


#: The options of a new claim that `claim` and `run` share.
_CLAIM = (
    *REQUEST,
    SEARCH,
    base.argument(
        "--wait",
        "TIME",
        "if it is busy, wait for so long, such as 10m: first come, first served among those who "
        "wait for the same classes (`waiting` lists them)",
        type=base.duration,
    ),
    *override(),
    *owner("its {}"),
)


class _ClaimRequest:
    """The request of a new claim, with the options of its search and of the claim."""

    def __init__(self, args: Namespace, consumer: str) -> None:
        with base.misused():
            self.consumer = names.consumer_name(consumer)
            if args.user is None and args.actor is not None:
                args.user = names.label(args.actor, "actor")
            try:
                parsed = parse_request(args)
            except base.Misused as error:
                if not hasattr(args, "consumer"):
                    raise
                expected = "CONSUMER and what it requests, such as job-1 VCPU=2"
                raise base.Misused(f"got {consumer!r} alone, expected {expected}") from error
            self.options = parse_search(args, parsed.limit)
        self.request = parsed.request
        if args.override_disabled:
            self.request = on_disabled_only(self.request)
        self.at: str | None = args.at
        self.wait: datetime.timedelta | None = args.wait
        #: further arguments of the claim
        self.claim_options: dict[str, Any] = {
            **owner_of(args),
            "ignore_maintenance": args.override_disabled,
            "wait": args.wait,
        }
        self.replaces: bool = getattr(args, "replace", False)
        #: expired claims block no job and no claim that waits
        self.release_expired: bool = getattr(args, "release_expired", True) or args.wait is not None

    def search(self, ledger: Ledger, snapshot: Snapshot) -> Candidates:
        """Return the candidates on the hosts that the server group allows."""
        options, group = self.options, self.claim_options["group"]
        if group is not None:
            from resource_objects.scheduler.pipeline import group_filters

            filters = group_filters(ledger, group, self.request, self.consumer)
            options = {**options, "filters": filters}
        with base.misused():
            return snapshot.candidates(self.request, **options)

    def claim(self, ledger: Ledger, **options: Any) -> Claim:
        """Claim the first of the candidates."""
        candidates = self.search(ledger, ledger.snapshot(self.at))
        return ledger.claim(self.consumer, candidates, **options, **self.claim_options)

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
) -> base.Refused:
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
        lines += base.expired_lines(ledger, last.reasons, option)
    is_busy = isinstance(refusal, exceptions.WaitTimedOut) or ledger.is_satisfiable(candidates)
    return (base.Busy if is_busy else base.Refused)(answer, lines)


@base.table(
    base.argument("consumer", "CONSUMER", "the consumer: any name"),
    *_CLAIM,
    base.argument("--expires-in", "TIME", "it may be released after this", type=base.duration),
    base.exclusive(
        base.argument(
            "--operation", "UUID", "an id: a repeated command with the same id happens once"
        ),
        base.flag(
            "--replace",
            "replace all its allocations; those of the same request stay where possible",
        ),
    ),
    RELEASE_EXPIRED,
    *ENVIRONMENT,
    columns=COLUMNS,
    empty="requests nothing",
    opens=False,
)
def claim(command: base.Command, args: Namespace) -> base.Answer:
    """Allocate resources for a consumer on a host with enough of them.

    Prints the allocations. If no host has enough, prints the reasons of each host: with exit status
    75 if other consumers use the resources, 1 if the request does not fit even on empty hosts. The
    options of the request are those of `candidates`.
    """
    if args.operation and not is_uuid(args.operation):
        raise base.Misused(f"--operation: got {args.operation!r}, expected a uuid")
    claim_request = _ClaimRequest(args, args.consumer)

    with command.open_ledger(args.actor) as ledger:
        if args.env and args.host is not None:
            ledger.provider(args.host)  # an unknown host is refused before anything is claimed
        claim = claim_request.take(ledger, lambda: _claim(ledger, claim_request, args))
        # a claim by --operation or --replace may be of an earlier call
        is_new = not args.operation and not args.replace
        if args.operation:
            _require_current(ledger, claim, args.operation)
        try:
            answer = (
                environment_text(ledger, claim, args.host)
                if args.env
                else base.Answer(allocation_rows(claim))
            )
        except exceptions.ResourceObjectsError:
            if is_new:
                _release(ledger, claim)
            else:
                base.note(f"resource-objects: claimed all the same: {claim}")
            raise

    def release() -> None:
        with command.open_ledger(args.actor) as ledger:
            _release(ledger, claim)

    answer.undo = release if is_new else None  # its allocations are not known to the caller
    return answer


def _require_current(ledger: Ledger, done: Claim, operation: str) -> None:
    """Raise an error if an operation's claim was released in the meantime.

    The caller would use resources that are not allocated to it.

    :raises NotFound: if the claim was released
    """
    consumer = next(ledger.consumers(name=done.consumer), None)
    if consumer is None or consumer.claim.id != done.id:
        detail = f"it gave back what {operation} claimed"
        raise exceptions.NotFound("consumer", done.consumer, detail)


def _claim(ledger: Ledger, claim_request: _ClaimRequest, args: Namespace) -> Claim:
    """Claim the requested resources, or return the claim of an earlier try."""
    consumer = next(ledger.consumers(name=claim_request.consumer), None) if args.replace else None
    claim_request.release_expired_claims(ledger)
    if consumer is None:
        return claim_request.claim(ledger, expires_in=args.expires_in, operation=args.operation)
    done = consumer.claim
    if not _has_allocations(ledger, claim_request):
        from resource_objects.ledger.feed import snapshot_in_place

        candidates = claim_request.search(
            ledger, snapshot_in_place(ledger.backend, claim_request.consumer, claim_request.at)
        )
        done = ledger.replace(
            claim_request.consumer,
            candidates,
            generation=consumer.generation,
            **claim_request.claim_options,
        )
    if args.expires_in is not None:
        done = ledger.renew(claim_request.consumer, expires_in=args.expires_in, claim=done.id)
    return done


def _release(ledger: Ledger, claim: Claim) -> None:
    """Release a claim; not another one that its consumer may have by now.

    :raises NotFound: if it is not there any more
    """
    if ledger.get_claim(claim.consumer).id == claim.id:
        ledger.release(claim.consumer)


def _has_allocations(ledger: Ledger, claim_request: _ClaimRequest) -> bool:
    """Return True if a consumer has the requested amounts at the requested place."""
    try:
        if request_again(ledger, claim_request.consumer) != claim_request.request:
            return False
    except base.Refused:  # units that no request can say
        return False
    if claim_request.at is None:
        return True
    here = {entry.name for entry in ledger.provider(claim_request.at).walk()}
    return any(
        entry.provider in here for entry in ledger.get_claim(claim_request.consumer).allocations
    )


# --- waiting ------------------------------------------------------------------------------------


@base.table(
    base.argument("--limit", "N", "the maximum number", type=int),
    columns=("#", "consumer", "waits for", "of", "since", "actor"),
    empty="nobody waits",
    reads=True,
)
def list_waiters(ledger: Ledger, args: Namespace) -> base.Rows:
    """List the waiting requests in the order of the queue.

    Requests that wait for a common resource class, in the same tree or in any tree, are served in
    order. A claim that does not wait may overtake them.
    """
    with base.misused():
        waiting = list(ledger.queue(limit=args.limit))
    by_entry = [{item.root_uuid for item in entry.awaits if item.root_uuid} for entry in waiting]
    roots = sorted(set().union(*by_entry))
    names = {provider.uuid: provider.name for provider in ledger.providers(uuid=roots)}
    now = ledger.now()
    return [
        (
            place,
            entry.consumer,
            str(entry.amounts),
            base.listed(sorted(names[uuid] for uuid in uuids if uuid in names)),
            base.age(entry.since, now),
            base.optional(entry.actor),
        )
        for place, (entry, uuids) in enumerate(zip(waiting, by_entry, strict=True), 1)
    ]


# --- release ------------------------------------------------------------------------------------


@base.table(
    base.argument("consumers", "CONSUMER", "who gives back", nargs="*"),
    base.argument("--user", "NAME", "all of this user, in place of names; none is no error"),
    base.flag("--expired", "all whose time is over, in place of names"),
    base.flag("--force", "also those of another user"),
    base.actor,
    columns=COLUMNS,
    empty="nothing was held",
    opens=False,
)
def release_consumers(command: base.Command, args: Namespace) -> base.Rows:
    """Release all allocations of consumers: of one, of several, or of all consumers of a user.

    Releases all of them or none. Consumers of another user need --force, which protects against
    mistakes only. --expired releases all consumers whose claim has expired, of any user.
    """
    names = list(dict.fromkeys(args.consumers))
    selections = {
        "names of consumers": names,
        "--user": args.user is not None,
        "--expired": args.expired,
    }
    chosen = [option for option, is_chosen in selections.items() if is_chosen]
    if len(chosen) != 1:
        got = f", got {' and '.join(chosen)}" if chosen else ""
        raise base.Misused(f"expected one of names of consumers, --user, --expired{got}")
    with command.open_ledger(args.actor) as ledger:
        if args.expired:
            return [row for claim in _all_expired(ledger) for row in allocation_rows(claim)]
        consumers = []
        if args.user is not None:
            consumers = list(ledger.consumers(user=args.user))
            names = [consumer.name for consumer in consumers]
        elif not args.force:
            consumers = list(ledger.consumers(name=names))
        of_other_users = [
            f"{consumer.name} is of {consumer.user}"
            for consumer in consumers
            if consumer.user not in (None, args.actor) and not args.force
        ]
        if of_other_users:
            raise base.Refused("these are of another user, which needs --force", of_other_users)
        claims = ledger.release_all(names) if names else ()
    return [row for claim in claims for row in allocation_rows(claim)]


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


def _usage_of_run(parser: Any) -> None:
    parser.usage = f"{parser.prog} [options] AMOUNTS -- PROGRAM [arguments]"


@base.command(
    _usage_of_run,
    *_CLAIM,
    base.argument("--name", "CONSUMER", "the consumer (default: a new name with your user name)"),
    base.argument(
        "--lease",
        "TIME",
        "if this command is killed, others may have it after this (default: 1m)",
        type=base.duration,
        default=datetime.timedelta(minutes=1),
    ),
    base.flag(
        "--end-when-lost", "end the program if its claim is released; default: only report it"
    ),
    opens=False,
    program=True,
)
def run(command: base.Command, args: Namespace) -> int:
    """Claim resources, run a program with the environment of a job, and release them at the end.

    The program runs on this machine, so the resources are searched on this machine unless --at
    names another one. Signals are forwarded to the program and its child processes. The claim
    expires and is renewed while the program runs: if this command is killed, the program gets
    SIGTERM, and other users may release the claim after --lease. The exit status is that of the
    program; 128 plus its number for a signal; 127 and 126 if the program does not exist or cannot
    be executed.
    """
    from resource_objects.cli.environment import read_environment

    claim_request = _ClaimRequest(args, args.name or _made_up(args.actor))
    with command.open_ledger(args.actor) as ledger:
        if claim_request.at is None and not _is_in_a_tree(claim_request.request):
            claim_request.at = _this_machine(ledger)
        claim_request.release_expired_claims(ledger)
        claim = claim_request.take(
            ledger, lambda: claim_request.claim(ledger, expires_in=args.lease)
        )
        keeper = _Keeper(ledger, claim, args)
        try:
            variables = read_environment(ledger, claim)
            return keeper.run(args.program, {**os.environ, **variables})
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
    raise base.Misused(f"this machine, {name}, is not in the ledger; use --at PROVIDER")


class _Keeper:
    """Renews a claim while a program runs."""

    def __init__(self, ledger: Ledger, claim: Claim, args: Namespace) -> None:
        self._ledger = ledger
        self._claim = claim
        self._args = args
        self._is_lost = False
        self._child: subprocess.Popen[bytes] | None = None
        self._ended = threading.Event()

    def run(self, program: Sequence[str], environ: dict[str, str]) -> int:
        """Run a program with its lease renewed; return its status."""
        from resource_objects.ledger.lease import Lease

        expires_in = self._args.lease
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
                self._tell(f"not released, others may have it after {self._args.lease}: {error}")

    def _on_lost(self, error: exceptions.ResourceObjectsError) -> None:
        self._is_lost = True
        ends = self._args.end_when_lost
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
            base.note(f"resource-objects: {text}")
            sys.stderr.flush()


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
