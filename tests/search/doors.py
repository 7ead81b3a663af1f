"""The same, tried by chance in scenarios and in ledgers: what each of them can be asked to do.

Worlds are the small fleets of :mod:`.generated`, :mod:`.numa_fleets` and :mod:`.device_fleets`:
shares and pools, topologies, devices, each in a ledger in memory, with a request.
"""

from __future__ import annotations

import datetime
import re
import uuid

import resource_objects as ro
from resource_objects import exceptions
from resource_objects.search import Snapshot
from resource_objects.search.scenario import Scenario
from tests.ledger.fleet_pictures import picture_of
from tests.search import device_fleets, generated, numa_fleets

#: Later than any test.
END = datetime.datetime(2090, 1, 1, tzinfo=datetime.UTC)


def counted(seed):
    """Return a ledger of hosts with shares and pools, and a request; None: it would refuse them."""
    roots, request = generated.mixed(seed)
    ledger = ro.connect("memory://")
    for root in roots:
        for one in root.walk():
            for inventory in one.inventories.values():
                inventory.used = 0
        try:
            ledger.sync(root)
        except exceptions.ResourceObjectsError:  # what a ledger refuses is tested elsewhere
            ledger.close()
            return None
    return ledger, request


#: All sorts of worlds: functions ``seed -> (ledger, request)``, None for some seeds.
WORLDS = [counted, numa_fleets.fleet, device_fleets.fleet]


def told(snapshot):
    """Return all that a picture shows, but for generations, and since when something is out."""
    found = picture_of(snapshot)
    del found["generation"]
    found["disabled"] = {place: (one.reason, one.until) for place, one in found["disabled"].items()}
    return found


def kept(ledger):
    """Return what a ledger keeps, in the form of :func:`told`."""
    return told(Snapshot(ledger.backend.read()))


def outcome(action, *arguments, **more):
    """Return what came of something: ``done``, or why not in words that any door says."""
    try:
        action(*arguments, **more)
    except exceptions.CapacityException as refusal:
        return sorted({_SINCE.sub("since", str(reason)) for reason in refusal.reasons})
    except exceptions.ResourceObjectsError as error:
        return error.code
    return "done"


_SINCE = re.compile(r"since [^;:]*?(?= until|:)")


class Doors:
    """Asks a scenario, and ledgers that are as it is, to do the same.

    What is done is drawn by chance, of what the scenario shows, and sometimes of what is not there.
    """

    VERBS = (
        *("claim", "claim", "claim", "claim_all", "move", "move", "release", "drain", "add"),
        *("add_below", "remove", "resize", "reparent", "disable", "enable"),
        *("traits", "aggregates", "rename"),
    )

    def __init__(self, chance, request):
        self.chance, self.request = chance, request
        self._names = 0

    def step(self, scenario, *ledgers):
        """Do something by chance; return what it was, and what came of it in each."""
        verb = self.chance.choice(self.VERBS)
        action = getattr(self, f"_{verb}")(scenario)
        return verb, [outcome(action, door) for door in (scenario, *ledgers)] if action else []

    # --- what is there ---

    def _new(self):
        self._names += 1
        return f"new-{self.chance.randrange(10**6)}-{self._names}"

    def _uuid(self):
        return str(uuid.UUID(int=self.chance.getrandbits(128), version=4))

    def _provider(self, scenario):
        return self.chance.choice([*scenario.snapshot.fleet.names, "nobody"])

    def _consumer(self, scenario):
        holders = sorted(name for name, _ in _holders(scenario.snapshot))
        return self.chance.choice([*holders, "nobody"])

    def _found(self, scenario):
        """Return a candidate as allocations: generations of a scenario are no ledger's."""
        classes = scenario.snapshot.classes
        asked = self.request
        if classes and self.chance.random() < 0.5:
            asked = ro.Request({self.chance.choice(classes): self.chance.choice([1, 1, 2])})
        found = list(scenario.candidates(asked, limit=4, per_host=2))
        return list(self.chance.choice(found).allocations) if found else None

    # --- what consumers hold ---

    def _claim(self, scenario):
        found, name = self._found(scenario), self._new()
        return found and (lambda door: door.claim(name, found))

    def _claim_all(self, scenario):
        both = [self._found(scenario) for _ in range(2)]
        found = {self._new(): one for one in both if one}
        return found and (lambda door: _any_refusal(door.claim_all, found))

    def _move(self, scenario):
        found, name = self._found(scenario), self._consumer(scenario)
        return found and (lambda door: door.move(name, found))

    def _release(self, scenario):
        name = self._consumer(scenario)
        return lambda door: door.release(name)

    def _drain(self, scenario):
        name = self._provider(scenario)

        def done(door):
            if isinstance(door, Scenario):
                return door.drain(name)
            rehearsed = door.snapshot().rehearse_drain(name)
            rehearsed.require()
            return door.apply(rehearsed.plan)

        return done

    # --- what providers are ---

    def _add(self, scenario):
        name = self._new()
        traits = self.chance.sample(generated.TRAITS, 1)
        new = ro.Provider(name, {"VCPU": 4, "CUSTOM_X": 2}, traits=traits, uuid=self._uuid())
        new.add(f"{self._new()}/0", "PGPU=1", uuid=self._uuid())
        return lambda door: door.add(new) if isinstance(door, Scenario) else door.sync(new)

    def _add_below(self, scenario):
        above = self._provider(scenario)
        new = ro.Provider(self._new(), "CUSTOM_X=3", uuid=self._uuid())

        def done(door):
            if isinstance(door, Scenario):
                return door.add(new, below=above)
            door.provider(above)  # or it is not there
            (root,) = door.trees(above)
            root.find(above).add(new.name, new.inventories, uuid=new.uuid)
            return door.sync(root)

        return done

    def _remove(self, scenario):
        name = self._provider(scenario)
        return lambda door: door.remove(name)

    def _resize(self, scenario):
        name, total = self._provider(scenario), self.chance.randint(1, 6)

        def done(door):
            if isinstance(door, Scenario):
                return door.resize(name, f"CUSTOM_X={total}")
            had = dict(door.provider(name).inventories)
            wanted = ro.Inventories({**had, **ro.Inventories.parse(f"CUSTOM_X={total}")})
            return door.change(name, inventories=wanted)

        return done

    def _reparent(self, scenario):
        name, parent = (
            self._provider(scenario),
            self.chance.choice([None, self._provider(scenario)]),
        )
        return lambda door: (
            door.reparent(name, parent)
            if isinstance(door, Scenario)
            else door.change(name, parent=parent)
        )

    def _traits(self, scenario):
        name, traits = self._provider(scenario), self.chance.sample(generated.TRAITS, 2)
        return lambda door: door.change(name, traits=traits)

    def _aggregates(self, scenario):
        name, some = self._provider(scenario), self.chance.sample(["r", "s", "rack"], 2)
        return lambda door: door.change(name, aggregates=some)

    def _rename(self, scenario):
        name = self._provider(scenario)
        to = self.chance.choice(["a-first", "z-last", self._provider(scenario)])
        return lambda door: door.change(name, name=to)

    # --- what is in service ---

    def _disable(self, scenario):
        name, until = self._provider(scenario), self.chance.choice([None, END])
        return lambda door: door.disable(name, reason="fan", until=until)

    def _enable(self, scenario):
        name = self._provider(scenario)
        return lambda door: door.enable(name)


class Blind(Doors):
    """Draws of what some picture showed: nobody looks at the scenario between its changes.

    So the second of two changes may write where the first did.
    """

    VERBS = (*(verb for verb in Doors.VERBS if verb != "drain"), "claim", "claim", "release")

    def __init__(self, chance, request, snapshot):
        super().__init__(chance, request)
        self._shown = snapshot.fork()
        self._consumers = ["nobody", *(name for name, _ in _holders(snapshot))]

    def _provider(self, scenario):
        return super()._provider(self._shown)

    def _consumer(self, scenario):
        return self.chance.choice(self._consumers)

    def _found(self, scenario):
        return super()._found(self._shown)

    def _new(self):
        self._consumers.append(super()._new())
        return self._consumers[-1]


def _holders(snapshot):
    return snapshot.fleet.places_of_holders.items()


def _any_refusal(action, found):
    """Refuse without reasons: one door tells each beside those before, one all at once."""
    try:
        action(found)
    except exceptions.CapacityException:
        raise exceptions.NoCandidates("refused") from None
