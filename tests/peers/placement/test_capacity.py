"""Our integer inventory decides as OpenStack Placement does, except where the table says so.

The real service runs in this process, on a file of SQLite, and is asked over its HTTP interface.
Random stories (an inventory, then claims, changed claims, releases and changed inventories) are
told to both; after every step both must have accepted it, or both refused it, and agree on what is
used. Where they part, one of :class:`Difference` must explain it. Each difference is proved by a
case of its own, so the list holds nothing that is not so.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import random
import uuid
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

import resource_objects as ro
from benchmarks.peer import Placement
from resource_objects import exceptions

SEEDS = range(150)
MAX_INT = 2**31 - 1  #: of Placement's schemas; also its max_unit where none is given

# other libraries' own, at import and at the first request
pytestmark = pytest.mark.filterwarnings("ignore")


class Difference(enum.Enum):
    """Where the two part, and what we do instead."""

    FLOAT_RATIO = "capacity is a float product there, exact here"
    UNIT_RULES = "they bind all that a consumer holds there, what one claim adds here"
    ZERO = "an amount of zero is malformed there, always possible here"
    AMOUNT_BITS = "an amount has 31 bits there, 63 here"
    RESERVED_ABOVE_TOTAL = "passes there if the capacity comes out above -1, never here"
    MIN_ABOVE_MAX = "passes there and nothing can be claimed, refused here"
    MAX_ABOVE_TOTAL = "passes there, refused here; the default is no bound in both"
    RATIO_NOT_POSITIVE = "passes there, refused here"
    RATIO_TOO_LARGE = "up to 3.4e38 there, up to 4000 here"
    RATIO_TOO_PRECISE = "rounded to a float there, refused beyond six decimals here"


@dataclasses.dataclass(frozen=True)
class Figures:
    """An inventory in Placement's words; ``allocation_ratio`` is decimal text."""

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = MAX_INT
    step_size: int = 1
    allocation_ratio: str = "1"

    def theirs(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"allocation_ratio": float(self.allocation_ratio)}

    def ours(self) -> dict[str, Any]:
        unbounded = {"max_unit": None} if self.max_unit == MAX_INT else {}
        return dataclasses.asdict(self) | unbounded

    def difference(self) -> Difference | None:
        """Return why we refuse figures that Placement accepts."""
        ratio = Decimal(self.allocation_ratio)
        holes = {
            Difference.RATIO_NOT_POSITIVE: ratio <= 0,
            Difference.RATIO_TOO_LARGE: ratio > 4000,
            Difference.RATIO_TOO_PRECISE: ratio * 10**6 % 1 != 0,
            Difference.RESERVED_ABOVE_TOTAL: self.reserved > self.total,
            Difference.MIN_ABOVE_MAX: self.min_unit > self.max_unit,
            Difference.MAX_ABOVE_TOTAL: self.total < self.max_unit < MAX_INT,
        }
        return next((difference for difference, holds in holes.items() if holds), None)

    def claim_difference(self, used: int, held: int, amount: int) -> Difference | None:
        """Return why the two part on a consumer that holds ``held`` and is to hold ``amount``."""
        if amount == 0:
            return Difference.ZERO
        if amount > MAX_INT:
            return Difference.AMOUNT_BITS
        added = amount - held
        if self._keeps_unit_rules(amount) != (added <= 0 or self._keeps_unit_rules(added)):
            return Difference.UNIT_RULES
        left, after = self.total - self.reserved, used + added
        as_float = after <= left * float(self.allocation_ratio)
        if as_float != (after <= left * Decimal(self.allocation_ratio)):
            return Difference.FLOAT_RATIO
        return None

    def _keeps_unit_rules(self, amount: int) -> bool:
        return self.min_unit <= amount <= self.max_unit and amount % self.step_size == 0


# --- the two sides ------------------------------------------------------------------------------


#: the last one before claims name a consumer generation, which is not what is compared here
VERSION = "placement 1.27"


class Theirs:
    """One provider of Placement with an inventory of VCPU."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._uuid = str(uuid.uuid4())
        self._consumers: dict[str, str] = {}
        body = {"name": self._uuid, "uuid": self._uuid}
        assert self._ask("POST", "/resource_providers", body)[0] == 200

    def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        return self._placement.answer(method, path, body, VERSION)

    def define(self, figures: Figures) -> bool:
        path = f"/resource_providers/{self._uuid}/inventories"
        generation = self._ask("GET", path)[1]["resource_provider_generation"]
        body = {
            "resource_provider_generation": generation,
            "inventories": {"VCPU": figures.theirs()},
        }
        return self._accepted(self._ask("PUT", path, body))

    def claim(self, consumer: str, amount: int) -> bool:
        """Let the consumer hold ``amount``, instead of whatever it held."""
        body = {
            "allocations": {self._uuid: {"resources": {"VCPU": amount}}},
            "project_id": "project",
            "user_id": "user",
        }
        return self._accepted(self._ask("PUT", self._path(consumer), body))

    def release(self, consumer: str) -> bool:
        return self._accepted(self._ask("DELETE", self._path(consumer)))

    def used(self) -> int:
        usages = self._ask("GET", f"/resource_providers/{self._uuid}/usages")[1]["usages"]
        found: int = usages.get("VCPU", 0)
        return found

    def _path(self, consumer: str) -> str:
        return f"/allocations/{self._consumers.setdefault(consumer, str(uuid.uuid4()))}"

    @staticmethod
    def _accepted(answer: tuple[int, Any]) -> bool:
        status, body = answer
        assert status in (200, 204, 400, 409), body
        if status == 409:  # refused for what it says, not for somebody else's write
            assert body["errors"][0]["code"] == "placement.undefined_code", body
        return status < 400


class Ours:
    """The same with an :class:`resource_objects.IntegerInventory`."""

    def __init__(self) -> None:
        self.inventory: ro.IntegerInventory | None = None
        self.held: dict[str, int] = {}

    def define(self, figures: Figures) -> bool:
        try:
            if self.inventory is None:
                self.inventory = ro.IntegerInventory(**figures.ours())
            else:
                self.inventory.update(**figures.ours())
        except exceptions.InvalidInput:
            return False
        return True

    def claim(self, consumer: str, amount: int) -> bool:
        return self._change(consumer, amount - self.held.get(consumer, 0))

    def release(self, consumer: str) -> bool:
        return self._change(consumer, -self.held.get(consumer, 0))

    def used(self) -> int:
        return 0 if self.inventory is None else self.inventory.used

    def _change(self, consumer: str, change: int) -> bool:
        assert self.inventory is not None
        try:
            self.inventory.consume(ro.IntegerAmount(change))
        except ro.CapacityException:
            return False
        self.held[consumer] = self.held.get(consumer, 0) + change
        return True


@dataclasses.dataclass(frozen=True)
class Define:
    """A step: the inventory gets these figures."""

    figures: Figures


@dataclasses.dataclass(frozen=True)
class Claim:
    """A step: the consumer is to hold this amount."""

    consumer: str
    amount: int


@dataclasses.dataclass(frozen=True)
class Release:
    """A step: the consumer gives back what it holds."""

    consumer: str


Step = Define | Claim | Release


def take(side: Theirs | Ours, step: Step) -> bool:
    """Tell one side a step and return whether it accepted."""
    match step:
        case Define(figures):
            return side.define(figures)
        case Claim(consumer, amount):
            return side.claim(consumer, amount)
        case Release(consumer):
            return side.release(consumer)


def difference(step: Step, figures: Figures | None, ours: Ours) -> Difference | None:
    """Return why the two part on a step taken in this state of ours."""
    match step:
        case Define(wanted):
            return wanted.difference()
        case Claim(consumer, amount):
            assert figures is not None
            return figures.claim_difference(ours.used(), ours.held.get(consumer, 0), amount)
        case Release():
            return None


# --- random stories -----------------------------------------------------------------------------


class Story:
    """An endless random story; it looks at our side to aim near the bounds."""

    RATIOS = ("1", "1", "1", "1.5", "16", "0.9", "1.1", "1.15", "2.3", "0.000001", "333.333333")
    STEPS = 12

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._names = (f"consumer-{number}" for number in itertools.count())

    def steps(self, ours: Ours) -> Iterator[Step]:
        """Yield the steps; each is taken before the next is asked for."""
        while ours.inventory is None:
            yield Define(self._figures())
        for _ in range(self.STEPS):
            yield self._step(ours)

    def _step(self, ours: Ours) -> Step:
        pick = self._random
        holders = [name for name, amount in ours.held.items() if amount]
        what = pick.choices(("claim", "change", "release", "define"), (5, 2, 2, 1))[0]
        if what == "define":
            return Define(self._figures())
        if what == "claim" or not holders:
            return Claim(next(self._names), self._amount(ours, 0))
        holder = pick.choice(holders)
        if what == "release":
            return Release(holder)
        return Claim(holder, self._amount(ours, ours.held[holder]))

    def _figures(self) -> Figures:
        pick = self._random
        total = pick.choice([pick.randint(1, 12), pick.randint(1, 4096), pick.randint(1, MAX_INT)])
        sound = pick.random() < 0.9
        most = pick.choice([MAX_INT, MAX_INT, total, pick.randint(1, total)])
        least = pick.choice([1, 1, 1, pick.randint(1, min(most, total))])
        digits = pick.choice([1, 2, 6])
        return Figures(
            total=total,
            reserved=pick.choice([0, 0, total, pick.randint(0, total)])
            if sound
            else pick.randint(0, 2 * total) % MAX_INT,
            min_unit=least if sound else pick.randint(1, 9),
            max_unit=most if sound else pick.choice([most, pick.randint(1, 2 * total) % MAX_INT]),
            step_size=pick.choice([1, 1, 1, 2, 3, 8]),
            allocation_ratio=pick.choice(
                [*self.RATIOS, f"{pick.uniform(0.1, 20):.{digits}f}"]
                if sound
                else ["0", "-1", "-0.5", "1.1234567", "5000"]
            ),
        )

    def _amount(self, ours: Ours, held: int) -> int:
        """Return an amount near one of the bounds, or any."""
        assert ours.inventory is not None
        pick, inventory = self._random, ours.inventory
        bounds = (
            held + inventory.free,
            held + inventory.free,
            inventory.min_unit,
            inventory.max_unit or inventory.total,
            inventory.step_size * pick.randint(1, 5),
            pick.randint(1, max(1, inventory.capacity)),
        )
        return min(max(1, pick.choice(bounds) + pick.choice([-1, 0, 0, 1])), MAX_INT)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_story_is_decided_the_same(seed: int, placement: Placement) -> None:
    theirs, ours = Theirs(placement), Ours()
    figures = None
    for step in Story(seed).steps(ours):
        why = difference(step, figures, ours)
        they, we = take(theirs, step), take(ours, step)
        if they != we:
            assert why is not None, f"{step}: Placement {they}, we {we}, with {ours.inventory}"
            return  # from here on they are in different states
        if isinstance(step, Define) and we:
            figures = step.figures
        assert theirs.used() == ours.used(), step


def test_the_stories_tell_of_everything() -> None:
    """Every rule refuses somewhere, every step is accepted somewhere, and most stories end well."""
    told: Counter[str] = Counter()
    for seed in SEEDS:
        ours = Ours()
        figures = None
        for step in Story(seed).steps(ours):
            why = difference(step, figures, ours)
            told[f"{type(step).__name__} {_said(ours, step)}"] += 1
            if why is not None:
                told["may part"] += 1
                break
            figures = step.figures if isinstance(step, Define) else figures
        else:
            told["ended"] += 1
    rules = ("capacity", "min_unit", "max_unit", "step_size")
    wanted = {"Define yes", "Claim yes", "Release yes", *(f"Claim {rule}" for rule in rules)}
    assert {name for name in wanted if told[name] < 5} == set(), told
    assert told["ended"] > len(SEEDS) / 4, told


def _said(ours: Ours, step: Step) -> str:
    """Take a step on our side and return ``yes``, ``no`` or the rule that refused it."""
    rule = "no"
    if isinstance(step, Claim) and ours.inventory is not None:
        change = step.amount - ours.held.get(step.consumer, 0)
        try:
            ours.inventory.fit(ro.IntegerAmount(change))
        except ro.CapacityException as refusal:
            rule = refusal.reasons[0].rule.value
    return "yes" if take(ours, step) else rule


# --- the differences, each proved ---------------------------------------------------------------

_EIGHT = Figures(8, allocation_ratio="2")


def _eight(**changes: Any) -> Define:
    return Define(dataclasses.replace(_EIGHT, **changes))


#: difference, what is told, and which side accepts the last step
PROOFS: list[tuple[Difference, str, list[Step], str]] = [
    (
        Difference.FLOAT_RATIO,
        "100 at 1.15 is 114.99999999999999 there, 115 here",
        [Define(Figures(100, allocation_ratio="1.15")), Claim("a", 115)],
        "ours",
    ),
    (
        Difference.FLOAT_RATIO,
        "2147483647 at 8.774017 is 18842058026.0 there, 18842058025.999999 here",
        [
            Define(Figures(MAX_INT, allocation_ratio="8.774017")),
            *(Claim(f"c{number}", MAX_INT) for number in range(8)),
            Claim("last", 18842058026 - 8 * MAX_INT),
        ],
        "theirs",
    ),
    (
        Difference.UNIT_RULES,
        "6 becomes 2, of at least 4: nothing is claimed here",
        [_eight(min_unit=4), Claim("a", 6), Claim("a", 2)],
        "ours",
    ),
    (
        Difference.UNIT_RULES,
        "3 becomes 6, of at most 4: 3 are claimed here",
        [_eight(max_unit=4), Claim("a", 3), Claim("a", 6)],
        "ours",
    ),
    (
        Difference.UNIT_RULES,
        "4 becomes 6, of at least 4: 2 are claimed here",
        [_eight(min_unit=4), Claim("a", 4), Claim("a", 6)],
        "theirs",
    ),
    (
        Difference.UNIT_RULES,
        "4 stays 4 after the step became 3: nothing is claimed here",
        [_eight(step_size=2), Claim("a", 4), _eight(step_size=3), Claim("a", 4)],
        "ours",
    ),
    (Difference.ZERO, "0 asked", [_eight(), Claim("a", 0)], "ours"),
    (
        Difference.AMOUNT_BITS,
        "2^31 in one claim",
        [Define(Figures(MAX_INT, allocation_ratio="2")), Claim("a", 2**31)],
        "ours",
    ),
    (
        Difference.RESERVED_ABOVE_TOTAL,
        "1 less 2 at 0.5 is -0.5, cut to 0",
        [Define(Figures(1, reserved=2, allocation_ratio="0.5"))],
        "theirs",
    ),
    (Difference.MIN_ABOVE_MAX, "5 to 4", [_eight(min_unit=5, max_unit=4)], "theirs"),
    (Difference.MAX_ABOVE_TOTAL, "16 of 8 at 2", [_eight(max_unit=16)], "theirs"),
    (
        Difference.MAX_ABOVE_TOTAL,
        "the total shrinks below it",
        [_eight(max_unit=8), _eight(total=4, max_unit=8)],
        "theirs",
    ),
    (Difference.RATIO_NOT_POSITIVE, "0", [_eight(allocation_ratio="0")], "theirs"),
    (
        Difference.RATIO_NOT_POSITIVE,
        "8 less 16 at -1 is 8",
        [_eight(reserved=16, allocation_ratio="-1")],
        "theirs",
    ),
    (Difference.RATIO_TOO_LARGE, "4000.000001", [_eight(allocation_ratio="4000.000001")], "theirs"),
    (Difference.RATIO_TOO_PRECISE, "1.1234567", [_eight(allocation_ratio="1.1234567")], "theirs"),
]


@pytest.mark.parametrize(
    ("named", "told", "steps", "accepts"), PROOFS, ids=[f"{p[0].name}: {p[1]}" for p in PROOFS]
)
def test_this_difference_is_so(
    named: Difference, told: str, steps: list[Step], accepts: str, placement: Placement
) -> None:
    theirs, ours = Theirs(placement), Ours()
    figures = None
    for step in steps[:-1]:
        assert take(theirs, step) and take(ours, step), step
        figures = step.figures if isinstance(step, Define) else figures
    assert difference(steps[-1], figures, ours) is named
    accepted = {"theirs": take(theirs, steps[-1]), "ours": take(ours, steps[-1])}
    assert accepted == {"theirs": accepts == "theirs", "ours": accepts == "ours"}


def test_every_difference_is_proved() -> None:
    assert {named for named, *_ in PROOFS} == set(Difference)
