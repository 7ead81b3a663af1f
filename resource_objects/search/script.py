"""A script of changes, a line each: what somebody tries in a scenario, as text.

==========================================  ======================================================
``claim NAME REQUEST``                      take the first candidate of a request: amounts, or all
                                            that a query string of Placement says
``move NAME HOST``                          let a consumer hold what it was made for on that host,
                                            with what its pools give it
``release NAME``                            give back all that a consumer holds
``drain PROVIDER ...``                      take it out of service, and move who holds something
``add NAME like HOST``                      add a host with all that another one has, and nobody
``add NAME INVENTORIES``                    add a host with these inventories
``add NAME INVENTORIES below PROVIDER``     add a provider below another one
``remove PROVIDER``                         remove a provider with all below it
``resize PROVIDER INVENTORIES``             other inventories of some classes: ``VCPU=16``
``reparent PROVIDER PARENT``                put it below another one; ``-``: make it a root
``disable PROVIDER [REASON]``               take it out of service; ``enable PROVIDER`` ends that
``disable-unit PROVIDER UNIT [REASON]``     take one device of it; ``enable-unit PROVIDER UNIT``
==========================================  ======================================================

Words are parted as a shell parts them: a name with a space stands in quotes. Empty lines, and what
follows a ``#`` at the beginning of a word, say nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
import shlex
import uuid as uuids
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from resource_objects import exceptions
from resource_objects.fields import FrozenDict
from resource_objects.providers import Provider
from resource_objects.providers.orders import StoredRequest
from resource_objects.providers.provider import Share
from resource_objects.reasons import sentences
from resource_objects.requests import Request, query
from resource_objects.resources import Amounts
from resource_objects.search.candidate import Chosen
from resource_objects.search.conditions.host import OnlyHost
from resource_objects.search.scenario import Scenario

#: What consumers were made for, by name.
Requests: TypeAlias = Mapping[str, Request]

#: Nobody said what anybody was made for.
_NONE: Requests = FrozenDict()

_MANY = 99
_COMMENT = re.compile(r"(?:^|\s)#.*")


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One line of a script: a verb and its words.

    :raises InvalidInput: if it is no change

    >>> Change.parse("resize host0 VCPU=16")
    Change(verb='resize', words=('host0', 'VCPU=16'))
    >>> print(Change("release", ("job-1",)))
    release job-1
    """

    verb: str
    words: tuple[str, ...]

    def __post_init__(self) -> None:
        one = VERBS.get(self.verb)
        if one is None:
            raise exceptions.InvalidInput("text", "change", str(self), f"one of {', '.join(VERBS)}")
        if not one.least <= len(self.words) <= one.most or not one.is_said(self.words):
            raise exceptions.InvalidInput("text", "change", str(self), f"{self.verb} {one.told}")

    @classmethod
    def parse(cls, line: str) -> Change:
        """Return the change that a line says."""
        try:
            verb, *words = shlex.split(_COMMENT.sub("", line)) or [""]
        except ValueError:
            raise exceptions.InvalidInput("text", "change", line, "quotes that end") from None
        return cls(verb, tuple(words))

    def __str__(self) -> str:
        return shlex.join((self.verb, *self.words))

    def apply(self, scenario: Scenario, requests: Requests = _NONE) -> None:
        """Make this change in a scenario. Errors are those of its methods.

        :param requests: what consumers were made for, for those that move
        """
        VERBS[self.verb].done(scenario, requests, *self.words)


def read_script(text: str | Iterable[str]) -> tuple[Change, ...]:
    """Return the changes that a script says.

    :raises InvalidInput: naming the line that is none

    >>> [str(one) for one in read_script("release job-1  # for a day\\n\\nenable host0")]
    ['release job-1', 'enable host0']
    """
    lines = text.splitlines() if isinstance(text, str) else text
    found: list[Change] = []
    for number, line in enumerate(lines, 1):
        if _COMMENT.sub("", line).strip():
            try:
                found.append(Change.parse(line))
            except exceptions.InvalidInput as error:
                if not error.is_about("text"):
                    raise
                raise exceptions.InvalidInput(
                    "text", f"line {number}", line.strip(), error.expected
                ) from None
    return tuple(found)


# --- how each is done -----------------------------------------------------------------------------


def _claim(scenario: Scenario, requests: Requests, name: str, asked: str) -> None:
    is_query = asked.startswith("resources") and ":" in asked
    request = query.parse(asked).request if is_query else Request(asked)
    scenario.claim(name, scenario.candidates(request))


def _move(scenario: Scenario, requests: Requests, name: str, host: str) -> None:
    known, root = made_for(scenario, requests, name), scenario.tree(host).name
    asked = known or counts_held(scenario, name)
    on_host = functools.partial(OnlyHost, root)  # what its pools give it goes along
    found = without(scenario, name).candidates(asked, limit=1, filters=[on_host])
    if not found:
        why = found.explain().of(root)
        told = "; ".join(sentences(why))
        raise exceptions.NoCandidates(f"no candidate for {name} on {root}", told, why)
    scenario.move(name, Chosen(found[0], asked) if known else found[0])


def _release(scenario: Scenario, requests: Requests, name: str) -> None:
    scenario.release(name)


def _drain(scenario: Scenario, requests: Requests, *names: str) -> None:
    scenario.drain(*names, requests=requests)


def _add(scenario: Scenario, requests: Requests, name: str, what: str, *more: str) -> None:
    if len(more) == 1:
        scenario.add(clone(scenario.tree(more[0]), name))
    else:
        below = more[1] if more else None
        scenario.add(Provider(name, what, uuid=_uuid_of(name)), below=below)


def _is_addition(words: tuple[str, ...]) -> bool:
    return len(words) == 2 or (words[1] == "like" if len(words) == 3 else words[2] == "below")


def _remove(scenario: Scenario, requests: Requests, name: str) -> None:
    scenario.remove(name)


def _resize(scenario: Scenario, requests: Requests, name: str, to: str) -> None:
    scenario.resize(name, to)


def _reparent(scenario: Scenario, requests: Requests, name: str, to: str) -> None:
    scenario.reparent(name, None if to == "-" else to)


def _disable(scenario: Scenario, requests: Requests, name: str, *reason: str) -> None:
    scenario.disable(name, reason=" ".join(reason) or "tried")


def _enable(scenario: Scenario, requests: Requests, name: str) -> None:
    scenario.enable(name)


@dataclasses.dataclass(frozen=True, slots=True)
class Verb:
    """What may stand at the beginning of a line."""

    done: Callable[..., None]
    told: str  #: the words that follow
    least: int
    most: int
    is_said: Callable[[tuple[str, ...]], bool] = bool


#: All verbs.
VERBS: Mapping[str, Verb] = {
    "claim": Verb(_claim, "NAME REQUEST", 2, 2),
    "move": Verb(_move, "NAME HOST", 2, 2),
    "release": Verb(_release, "NAME", 1, 1),
    "drain": Verb(_drain, "PROVIDER ...", 1, _MANY),
    "add": Verb(
        _add,
        "NAME like HOST, NAME INVENTORIES, or NAME INVENTORIES below PROVIDER",
        2,
        4,
        _is_addition,
    ),
    "remove": Verb(_remove, "PROVIDER", 1, 1),
    "resize": Verb(_resize, "PROVIDER INVENTORIES", 2, 2),
    "reparent": Verb(_reparent, "PROVIDER PARENT, or -", 2, 2),
    "disable": Verb(_disable, "PROVIDER [REASON]", 1, _MANY),
    "enable": Verb(_enable, "PROVIDER", 1, 1),
}

#: Verbs that need to know what consumers were made for.
MOVING = ("move", "drain")


def without(scenario: Scenario, *consumers: str) -> Scenario:
    """Return a fork in which some consumers hold nothing: where one may go, as if it were new."""
    found = scenario.fork()
    for consumer in consumers:
        found.release(consumer)
    return found


def made_for(scenario: Scenario, requests: Requests, consumer: str) -> Request | None:
    """Return what a consumer was made for: here, or else as somebody says; None if nobody does.

    :raises NotFound: if it holds nothing
    :raises InvalidInput: for what is no request
    """
    kept = scenario.held(consumer).request
    if isinstance(kept, StoredRequest):
        return kept.request
    said = requests.get(consumer)
    return None if said is None else Request.of(said)


def counts_held(scenario: Scenario, consumer: str) -> Request:
    """Return the counts that a consumer holds, as a request."""
    counts: dict[str, int] = {}
    for use in scenario.held(consumer).held:
        counts[use.resource_class] = counts.get(use.resource_class, 0) + use.amount
    return Request(Amounts(counts))


def clone(host: Provider, name: str) -> Provider:
    """Return a host with all that another one has, and nobody on it, under another name.

    Providers below it are named after it. Always the same uuids for the same names.

    >>> host = Provider("host0", "VCPU=8", children=[Provider("host0/gpu0", "PGPU=1")])
    >>> print(*(one.name for one in clone(host, "host9").walk()))
    host9 host9/gpu0
    """
    names = {one.name: _renamed(one.name, host.name, name) for one in host.walk()}

    def made(one: Provider) -> Provider:
        shares = [
            Share(
                resource_class=share.resource_class,
                of=names[share.of],
                of_class=share.of_class,
                factor=share.factor,
            )
            for share in one.shares
        ]
        return Provider(
            names[one.name],
            one.inventories,
            traits=one.traits,
            uuid=_uuid_of(names[one.name]),
            aggregates=one.aggregates,
            shares=shares,
            children=map(made, one.children),
        )

    return made(host)


def _renamed(one: str, host: str, name: str) -> str:
    return name + one.removeprefix(host) if one.startswith(host) else f"{name}/{one}"


def _uuid_of(name: str) -> str:
    """Return a uuid that is always the same for a name: the same script is the same scenario."""
    return str(uuids.uuid5(uuids.NAMESPACE_URL, f"resource-objects:{name}"))


def free_name(known: Iterable[str], like: str) -> Iterator[str]:
    """Yield names for hosts like one, none of which is known."""
    taken = set(known)
    for number in itertools.count(1):
        name = f"{like}-like-{number}"
        if name not in taken:
            yield name
