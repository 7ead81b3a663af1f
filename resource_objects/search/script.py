"""A script: changes of a scenario as lines of text.

========================================  ========================================================
``claim NAME REQUEST``                    claim the first candidate of a request: amounts, or a
                                          query string of Placement
``move NAME HOST``                        place a consumer again on a host, by its request, with
                                          allocations from the pools of the host
``release NAME``                          release all allocations of a consumer
``drain PROVIDER ...``                    disable providers, and move their consumers
``add NAME like HOST``                    add a host with the definitions of another one
``add NAME INVENTORIES``                  add a host with these inventories
``add NAME INVENTORIES below PROVIDER``   add a provider below another one
``remove PROVIDER``                       remove a provider, with all providers below it
``resize PROVIDER INVENTORIES``           replace the inventories of some classes: ``VCPU=16``
``reparent PROVIDER PARENT``              move a provider to a new parent; ``-`` makes it a root
``disable PROVIDER [REASON]``             disable a provider
``enable PROVIDER``                       enable a provider
========================================  ========================================================

Words are split as by a shell: a name with a space is quoted. Empty lines are ignored, and so is the
rest of a line after a ``#`` at the beginning of a word.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import shlex
import uuid as uuids
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import TypeAlias

from resource_objects import exceptions
from resource_objects.fields import FrozenDict
from resource_objects.providers import Provider
from resource_objects.providers.orders import StoredRequest
from resource_objects.reasons import sentences
from resource_objects.requests import Request, query
from resource_objects.resources import Amounts
from resource_objects.search.candidate import Chosen
from resource_objects.search.conditions.host import OnlyHost
from resource_objects.search.scenario import Scenario, State

#: The requests of consumers, by name.
Requests: TypeAlias = Mapping[str, Request]

#: The forms of the words after each verb. Lowercase words are literal; the last word may repeat.
VERBS: Mapping[str, tuple[str, ...]] = {
    "claim": ("NAME REQUEST",),
    "move": ("NAME HOST",),
    "release": ("NAME",),
    "drain": ("PROVIDER ...",),
    "add": ("NAME like HOST", "NAME INVENTORIES", "NAME INVENTORIES below PROVIDER"),
    "remove": ("PROVIDER",),
    "resize": ("PROVIDER INVENTORIES",),
    "reparent": ("PROVIDER PARENT",),
    "disable": ("PROVIDER [REASON]",),
    "enable": ("PROVIDER",),
}
#: The verbs for which the requests of consumers matter.
MOVING = ("move", "drain")

_COMMENT = re.compile(r"(?:^|\s)#.*")


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One line of a script: a verb and its words.

    :raises InvalidInput: for an unknown verb or other words

    >>> Change.parse("resize host0 VCPU=16")
    Change(verb='resize', words=('host0', 'VCPU=16'))
    >>> print(Change("release", ("job-1",)))
    release job-1
    """

    verb: str
    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.verb not in VERBS:
            raise exceptions.InvalidInput("text", "change", str(self), f"one of {', '.join(VERBS)}")
        forms = VERBS[self.verb]
        if not any(_has_form(self.words, form.split()) for form in forms):
            expected = f"{self.verb} {', '.join(forms)}"
            raise exceptions.InvalidInput("text", "change", str(self), expected)

    @classmethod
    def parse(cls, line: str) -> Change:
        """Return the change of a line.

        :raises InvalidInput: for a line without a valid change
        """
        try:
            verb, *words = shlex.split(_COMMENT.sub("", line)) or [""]
        except ValueError:
            raise exceptions.InvalidInput("text", "change", line, "quotes that end") from None
        return cls(verb, tuple(words))

    def __str__(self) -> str:
        return shlex.join((self.verb, *self.words))

    def apply(
        self, scenario: Scenario[State], requests: Mapping[str, Request] = FrozenDict()
    ) -> None:
        """Make this change in a scenario. Errors are those of the methods of the scenario.

        :param requests: the requests of consumers that move
        """
        match (self.verb, *self.words):
            case "claim", name, text:
                is_query = text.startswith("resources") and ":" in text
                request = query.parse(text).request if is_query else Request(text)
                scenario.claim(name, scenario.candidates(request))
            case "move", name, host:
                _move(scenario, requests, name, host)
            case "drain", *providers:
                scenario.drain(*providers, requests=requests)
            case "add", name, "like", host:
                scenario.add(clone(scenario.tree(host), name))
            case "add", name, inventories, *below:
                provider = Provider(name, inventories, uuid=_uuid_of(name))
                scenario.add(provider, below=below[1] if below else None)
            case "reparent", provider, parent:
                scenario.reparent(provider, None if parent == "-" else parent)
            case "disable", provider, *reason:
                scenario.disable(provider, reason=" ".join(reason) or "tried")
            case verb, *words:
                getattr(scenario, verb)(*words)


def _has_form(words: Collection[str], form: list[str]) -> bool:
    if form[-1] in ("...", "[REASON]"):
        return len(words) >= len(form) - 1
    pairs = zip(words, form, strict=False)
    return len(words) == len(form) and all(
        word == expected for word, expected in pairs if expected.islower()
    )


def read_script(text: str | Iterable[str]) -> tuple[Change, ...]:
    """Return the changes of a script.

    :raises InvalidInput: with the number of the invalid line

    >>> [str(change) for change in read_script("release job-1  # for a day\\n\\nenable host0")]
    ['release job-1', 'enable host0']
    """
    changes: list[Change] = []
    for number, line in enumerate(text.splitlines() if isinstance(text, str) else text, 1):
        if _COMMENT.sub("", line).strip():
            try:
                changes.append(Change.parse(line))
            except exceptions.InvalidInput as error:
                field = f"line {number}"
                raise exceptions.InvalidInput("text", field, line.strip(), error.expected) from None
    return tuple(changes)


def _move(scenario: Scenario[State], requests: Requests, name: str, host: str) -> None:
    stored, root = request_of(scenario, requests, name), scenario.tree(host).name
    request = stored or request_for_counts(scenario, name)
    on_host = partial(OnlyHost, root)  # with its pools, unlike in_tree
    candidates = without_consumers(scenario, name).candidates(request, limit=1, filters=[on_host])
    if not candidates:
        reasons = candidates.explain().of(root)
        explanation = "; ".join(sentences(reasons))
        raise exceptions.NoCandidates(f"no candidate for {name} on {root}", explanation, reasons)
    scenario.move(name, Chosen(candidates[0], request) if stored else candidates[0])


def without_consumers(scenario: Scenario[State], *consumers: str) -> Scenario[State]:
    """Return a fork in which some consumers are released."""
    fork = scenario.fork()
    for consumer in consumers:
        fork.release(consumer)
    return fork


def request_of(scenario: Scenario[State], requests: Requests, consumer: str) -> Request | None:
    """Return the request of a consumer: of its claim in the scenario, or a stated one, or None.

    :raises NotFound: if it has no allocations
    :raises InvalidInput: for an invalid request
    """
    stored = scenario.held(consumer).request
    if isinstance(stored, StoredRequest):
        return stored.request
    stated = requests.get(consumer)
    return None if stated is None else Request.of(stated)


def request_for_counts(scenario: Scenario[State], consumer: str) -> Request:
    """Return a request for the counts that are allocated to a consumer."""
    counts: dict[str, int] = {}
    for use in scenario.held(consumer).held:
        counts[use.resource_class] = counts.get(use.resource_class, 0) + use.amount
    return Request(Amounts(counts))


def clone(host: Provider, name: str) -> Provider:
    """Return a host with the definitions of another one, under another name, without allocations.

    The providers below it are named after it. The same names have the same uuids.

    >>> host = Provider("host0", "VCPU=8", children=[Provider("host0/gpu0", "PGPU=1")])
    >>> print(*(provider.name for provider in clone(host, "host9").walk()))
    host9 host9/gpu0
    """

    def renamed(old: str) -> str:
        return name + old.removeprefix(host.name) if old.startswith(host.name) else f"{name}/{old}"

    def copied(provider: Provider) -> Provider:
        return Provider(
            renamed(provider.name),
            provider.inventories,
            traits=provider.traits,
            uuid=_uuid_of(renamed(provider.name)),
            aggregates=provider.aggregates,
            shares=[share.replace(of=renamed(share.of)) for share in provider.shares],
            children=map(copied, provider.children),
        )

    return copied(host)


def _uuid_of(name: str) -> str:
    """Return the uuid of a new provider: the same script makes the same scenario."""
    return str(uuids.uuid5(uuids.NAMESPACE_URL, f"resource-objects:{name}"))


def free_name(names: Collection[str], host: str) -> str:
    """Return a name for a host like another one that is not in use."""
    like = (f"{host}-like-{number}" for number in itertools.count(1))
    return next(name for name in like if name not in names)
