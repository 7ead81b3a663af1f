"""The conformance kit on a remote Placement, with the tests that have to fail there.

The listed tests are run like all others. One that passes is to be removed from the list, and one
that is listed by an unsupported capability has to be refused because of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Self

import pytest

from resource_objects import exceptions
from resource_objects.backends.placement import unsupported
from resource_objects.backends.placement.backend import PlacementBackend
from resource_objects.providers.backend import Capability
from resource_objects.testing.conformance import BackendConformance, Requirement
from resource_objects.testing.conformance.races import in_processes
from resource_objects.testing.conformance.requirements import lacking
from tests.support.remote_rules import BY_CHANCE, CANNOT, NOT_RUN, REAL_CANNOT, Difference, why_of

#: The adapters of keystoneauth1 by which the services of these URLs are asked.
ADAPTERS: dict[str, Any] = {}


class ServedBackend(PlacementBackend):
    """Opens a URL of :data:`ADAPTERS` by its adapter."""

    @classmethod
    def open(cls, url: str) -> Self:
        """Open what a URL names."""
        if url in ADAPTERS:
            return cls.open_with("placement://?workers=2", ADAPTERS[url])
        return super().open(url)


class RemoteConformance(BackendConformance):
    """The kit; a rule that is listed has to fail."""

    backend_class = ServedBackend
    # the service is in the process of the test, where no other finds it
    lacks = frozenset({Requirement.PROCESSES})

    @classmethod
    def why(cls, item: pytest.Function) -> Capability | Difference | None:
        """Return why a test cannot pass, None if it has to."""
        return why_of(item.name, item.originalname)

    @classmethod
    def has_to_fail(cls, item: pytest.Function) -> tuple[str | None, bool]:
        """Return why a test cannot pass, None if it has to; and whether it never passes."""
        why = cls.why(item)
        return None if why is None else why.value, why not in BY_CHANCE

    @pytest.fixture(autouse=True)
    def required(
        self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[None]:
        """Skip tests of processes, which do not find the service in the process of the test, and
        tests that would wait for a refused step. Check the refusals of unsupported capabilities."""
        for one in lacking(request.function, self.lacks):
            pytest.skip(f"{self.backend_name} lacks {one.name.lower()}: {one.value}")
        parameters = getattr(request.node, "callspec", None)
        if parameters is not None and parameters.params.get("at_once") == "processes":
            self.skip_unless_supported(in_processes)
        function = request.function.__name__
        if function in NOT_RUN:
            pytest.skip(f"{self.backend_name} lacks {NOT_RUN[function].value}")
        refused: set[Capability] = set()
        refusal = unsupported.refusal

        def noted(ability: Capability, what: str = "") -> exceptions.NotSupported:
            refused.add(ability)
            return refusal(ability, what)

        monkeypatch.setattr(unsupported, "refusal", noted)
        yield
        why = self.why(request.node)
        if isinstance(why, Capability) and why not in {*refused, Capability.REQUESTS}:
            raise LookupError(f"it fails, but not by the refusal of {why.value}")


def table() -> str:
    """Return the published table: each reason, with its numbers of rules and of invariants.

    Reasons of the real Placement only follow.
    """
    real = {
        why: {name for kept in REAL_CANNOT.values() for name in kept.get(why, ())}
        for kept in REAL_CANNOT.values()
        for why in kept
    }
    rows = [_row(why, names) for why, names in CANNOT.items()]
    besides = [_row(why, names) for why, names in real.items()]
    width = max(len(said) for said, _, _ in (*rows, *besides))
    head = [("reason", "rules", "invariants")]
    between = [("", "", ""), ("only with Placement 16 itself", "", "")]
    lines = [
        f"{said:<{width}}  {count:>5}  {laws}".rstrip()
        for said, count, laws in (*head, *rows, *between, *besides)
    ]
    return "\n".join([*_summary(), "", *lines]) + "\n"


def _summary() -> list[str]:
    """Return the number of rules, and the numbers of those with each outcome."""
    rules = {name for name in dir(BackendConformance) if name.startswith("test_")}
    listed = {name.partition("[")[0] for names in CANNOT.values() for name in names}
    lacks = RemoteConformance.lacks
    unasked = {name for name in rules if lacking(getattr(BackendConformance, name), lacks)}
    unasked |= NOT_RUN.keys()
    met, unmet = len(rules - listed - unasked), len(listed - unasked)
    return [
        f"{len(rules)} rules: {met} are satisfied; {unmet} are not, or with some parameters only;",
        f"{len(unasked)} are not run: they need several processes, or would wait for a refusal",
    ]


def _row(why: Capability | Difference, names: Collection[str]) -> tuple[str, str, str]:
    laws = {law for name in names for law in _laws(name.partition("[")[0])}
    return why.value, str(len(names)), ", ".join(map(str, sorted(laws))) or "-"


def _laws(name: str) -> set[int]:
    marks = getattr(getattr(BackendConformance, name), "pytestmark", [])
    return {law for mark in marks if mark.name == "law" for law in mark.args}
