"""Random requests of Placement's API, from what is there: most of them succeed and go deep.

All routes, all microversions, and bad input: stale generations, names and uuids that nobody has,
other methods, headers and bodies. What is there is read of the service's own ledger, so that a
generation that is said is right unless it is meant to be wrong.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import webob

from resource_objects.ledger import Ledger
from resource_objects.providers.listing import ConsumerFilter, ListedProvider, ProviderFilter
from resource_objects.providers.orders import ConsumerRecord

PROVIDERS = [f"aaaaaaaa-0000-4000-8000-{n:012d}" for n in range(8)]
CONSUMERS = [f"cccccccc-0000-4000-8000-{n:012d}" for n in range(6)]
AGGREGATES = [f"eeeeeeee-0000-4000-8000-{n:012d}" for n in range(3)]
NAMES = [f"host{n}" for n in range(9)]
CLASSES = ["VCPU", "MEMORY_MB", "DISK_GB", "CUSTOM_A", "CUSTOM_B"]
TRAITS = ["HW_CPU_X86_AVX", "MISC_SHARES_VIA_AGGREGATE", "CUSTOM_T1", "CUSTOM_T2"]
DISABLED = "COMPUTE_STATUS_DISABLED"
TYPES = ["INSTANCE", "MIGRATION", "unknown"]
PROJECTS, USERS = ["p1", "p2"], ["u1", "u2"]
METHODS = ["GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS"]
#: What is of no kind that a field may have.
WRONG: list[Any] = [
    *(None, True, [], {}, ["x"], {"x": 1}, [[[[]]]]),
    *(-1, 0, 2.0, 1.5, 2**31 - 1, 2**31, 2**70, 1e300, float("nan"), float("inf"), float("-inf")),
    *("", "x", "é", " x", "x\t", "CUSTOM_A\n", "CUSTOM_", "x" * 201, "X" * 256, "-" * 36),
]
#: What is added to a query: of a word that is said twice, or is none.
SAID = [
    *(
        "limit=1",
        "limit=x",
        "group_policy=none",
        "group_policy=x",
        "resources=VCPU:1",
        "resources=",
    ),
    *("required=CUSTOM_T1", "required=", "member_of=x", f"in_tree={PROVIDERS[0]}", "in_tree=x"),
    *("name=host1", f"uuid={PROVIDERS[1]}", "uuid=x", "project_id=p1", "project_id=", "user_id=u2"),
    *(
        "consumer_type=all",
        "consumer_type=x",
        "associated=true",
        "same_subtree=1",
        "same_subtree=,",
    ),
    *("root_required=CUSTOM_T1", "root_required=", "resources1=VCPU:1", "required1=!CUSTOM_T1"),
]


@dataclasses.dataclass(frozen=True)
class Sent:
    """A request as it is sent."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        headers = {k: v for k, v in self.headers.items() if k not in ("x-auth-token", "x-roles")}
        return (
            f"{self.method} {self.path} {(self.body or b'').decode('utf-8', 'replace')} {headers}"
        )

    def answer(self, app: Any) -> webob.Response:
        """Return the answer of an application."""
        asked = webob.Request.blank(self.path, method=self.method, headers=dict(self.headers))
        if self.body is not None:
            asked.body = self.body
        return asked.get_response(app)


def sent(method: str, path: str, body: Any = None, minor: int = 39) -> Sent:
    """Return a request in which nothing is wrong."""
    headers = {
        "x-auth-token": "admin",
        "x-roles": "admin,service",
        "openstack-api-version": f"placement 1.{minor}",
        "accept": "application/json",
    }
    if body is not None:
        headers["content-type"] = "application/json"
    return Sent(method, path, None if body is None else json.dumps(body).encode(), headers)


class World:
    """What a ledger holds, as it is needed to ask for more."""

    def __init__(self, ledger: Ledger) -> None:
        listed = ledger.backend.list_providers(ProviderFilter(), 1000)
        self.providers: dict[str, ListedProvider] = {one.uuid: one for one in listed}
        kept = ledger.backend.list_consumers(ConsumerFilter(), 1000, None)
        self.consumers: dict[str, ConsumerRecord] = {one.consumer: one for one in kept}
        self.full = sorted(uuid for uuid, one in self.providers.items() if one.records)
        self.classes = sorted(
            {record.resource_class for one in self.providers.values() for record in one.records}
        )

    def generation(self, uuid: str) -> int:
        """Return a provider's generation, 0 if there is none."""
        one = self.providers.get(uuid)
        return 0 if one is None else one.definition_writes + one.allocation_writes


class Asker:
    """Makes requests by chance."""

    def __init__(self, chance: random.Random, *, bad: float = 0.2) -> None:
        self.chance, self.bad = chance, bad
        self.base = chance.choice([39, chance.randrange(40)])

    # --- chances ---

    def is_so(self, share: float) -> bool:
        return self.chance.random() < share

    def one_of(self, some: Any) -> Any:
        return self.chance.choice(list(some))

    def some_of(self, some: Any, most: int = 3) -> list[Any]:
        some = list(some)
        return self.chance.sample(some, self.chance.randint(0, min(most, len(some))))

    def provider(self, world: World) -> str:
        """Return the uuid of a provider, mostly of one that is there."""
        if world.providers and self.is_so(0.93):
            return str(self.one_of(world.providers))
        return str(self.one_of(PROVIDERS))

    def consumer(self, world: World) -> str:
        if world.consumers and self.is_so(0.5):
            return str(self.one_of(world.consumers))
        return str(self.one_of(CONSUMERS))

    def spelled(self, uuid: str) -> str:
        """Return a uuid, now and then as others write it."""
        if self.is_so(0.97):
            return uuid
        return str(
            self.one_of([uuid.upper(), uuid.replace("-", ""), f"{{{uuid}}}", uuid[:-1], "x"])
        )

    def generation(self, world: World, uuid: str) -> int:
        now = world.generation(uuid)
        return now if self.is_so(0.92) else now + int(self.one_of([-1, 1, 7]))

    def class_name(self) -> str:
        return str(
            self.one_of(CLASSES) if self.is_so(0.97) else self.one_of(["CUSTOM_Z", "x", "NO"])
        )

    def trait(self) -> str:
        if self.is_so(0.96):
            return str(self.one_of(TRAITS))
        return str(self.one_of(["CUSTOM_Z", "x", "NO", "HW_CPU_X86_SSE", ""]))

    # --- a fleet ---

    def build(self) -> Iterator[Sent]:
        """Yield the requests that make a small fleet, now and then."""
        if self.is_so(0.2):
            return
        for name in ("CUSTOM_A", "CUSTOM_B"):
            yield sent("PUT", f"/resource_classes/{name}")
        for name in ("CUSTOM_T1", "CUSTOM_T2"):
            yield sent("PUT", f"/traits/{name}")
        made = PROVIDERS[: self.chance.randint(2, 6)]
        for at, uuid in enumerate(made):
            above = self.one_of(made[:at]) if at and self.is_so(0.5) else None
            body = {"name": NAMES[at], "uuid": uuid, "parent_provider_uuid": above}
            yield sent("POST", "/resource_providers", body)
            path = f"/resource_providers/{uuid}"
            generation = 0
            for what, has in (
                ("inventories", self.inventories()),
                ("traits", sorted({self.trait() for _ in range(2)} - {"", "x", "NO", "CUSTOM_Z"})),
                ("aggregates", self.some_of(AGGREGATES, 2)),
            ):
                said = {"resource_provider_generation": generation, what: has}
                yield sent("PUT", f"{path}/{what}", said)
                generation += what != "traits" or bool(has)

    # --- a request ---

    def ask(self, world: World) -> Sent:
        """Return a request."""
        minor = self.base if self.is_so(0.7) else self.chance.randrange(40)
        routes = _ROUTES if len(world.providers) > 2 or self.is_so(0.3) else _FIRST
        [route] = self.chance.choices(list(routes), list(routes.values()))
        method, path, body = route(self, world, minor)
        made = sent(method, path, body, minor)
        return self.spoiled(made, body) if self.is_so(self.bad) else made

    def spoiled(self, made: Sent, body: Any) -> Sent:
        """Return a request in which something is wrong, or odd."""
        what = self.chance.randrange(11)
        if what == 4:
            return dataclasses.replace(made, method=self.one_of(METHODS))
        if what == 5:
            return dataclasses.replace(made, path=self.astray(made.path))
        if body is not None and what == 8:
            return dataclasses.replace(made, body=self.garbled(made.body or b""))
        if body is not None and what > 8:
            return dataclasses.replace(made, body=json.dumps(self.bent(body)).encode())
        return dataclasses.replace(made, headers=self.odd(what, dict(made.headers)))

    def astray(self, path: str) -> str:
        """Return a path, or a query, that is odd."""
        what = self.chance.randrange(4)
        if what == 0:
            return path + self.one_of(["/", "/x", "%20", "%0A", "%ff", "/../traits", "//", "%2Fx"])
        route, _, query = path.partition("?")
        words = query.split("&") if query else []
        if what == 1:
            words.insert(
                self.chance.randint(0, len(words)), self.one_of(["x=1", "x=%ff", "=", "é"])
            )
        elif what == 2 and words:
            words.insert(self.chance.randint(0, len(words)), self.one_of(words))
        else:
            words.insert(self.chance.randint(0, len(words)), self.one_of(SAID))
        return f"{route}?{'&'.join(words)}"

    def garbled(self, body: bytes) -> bytes:
        """Return what is no JSON of the right form, or in other letters."""
        text = body.decode()
        others = ["utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1"]
        some = [b"", b"{", b"null", b"[]", b"{}", b'"x"', b"\xff\xfe", b"1", b"[1]", b"NaN"]
        some += [b"[" * 5000, b"[" * 30 + b"]" * 30, body + b"x", body + b"\n ", body[:-1]]
        return bytes(self.one_of([*some, text.encode(self.one_of(others))]))

    def odd(self, what: int, headers: dict[str, str]) -> dict[str, str]:
        """Return headers of which one is odd."""
        if what == 0:
            said = ["1.40", "0.9", "2.0", "abc", "latest", "1.1.1", "", "1.-1", "1.01", "1.5,"]
            form = self.one_of(
                ["placement {}"] * 4 + ["{}", "PLACEMENT {}", "compute 2.1, placement {}"]
            )
            headers["openstack-api-version"] = form.format(self.one_of([*said, "1.20", "1.39"]))
        elif what == 1:
            del headers["openstack-api-version"]
        elif what == 2:
            kinds = ["text/plain", "application/json; charset=utf-8", "application/xml", ""]
            headers["content-type"] = self.one_of(
                [*kinds, "Application/JSON", "application/json,x"]
            )
        elif what == 3:
            some = [
                "text/plain",
                "*/*",
                "text/html,*/*;q=0.1",
                "",
                "application/*",
                "x",
                "text/html",
            ]
            headers["accept"] = self.one_of([*some, "application/json;q=0", "text/plain, */*;q=0"])
        elif what == 6:
            del headers["x-auth-token"]
        else:
            headers["x-roles"] = self.one_of(["", "reader", "member", "admin", "service"])
            headers["x-auth-token"] = self.one_of(["p1:u1", "admin"])
        return headers

    def bent(self, body: Any) -> Any:
        """Return a body with one value, key or item that is another, too much or missing."""
        places = list(_places(body))
        if not places or self.is_so(0.05):
            return self.one_of(WRONG)
        path = self.one_of(places)
        made = json.loads(json.dumps(body))
        at = made
        for step in path[:-1]:
            at = at[step]
        key, what = path[-1], self.chance.randrange(3)
        if what == 0:
            del at[key]
        elif what == 1 or isinstance(at, list):
            at[key] = self.one_of(WRONG)
        else:
            keys = ["x", "", "VCPU", "é", "generation", "-" * 36, "CUSTOM_Z", "VCPU\n", "X" * 256]
            at[self.one_of(keys)] = self.one_of([at[key], 1])
        return made

    # --- providers ---

    def make_provider(self, world: World, minor: int) -> Any:
        there = [uuid for uuid in PROVIDERS if uuid not in world.providers]
        uuid = self.one_of(there if there and self.is_so(0.9) else PROVIDERS)
        names = {one.name for one in world.providers.values()}
        free = [name for name in NAMES if name not in names]
        body: dict[str, Any] = {"name": self.one_of(free if self.is_so(0.95) else NAMES)}
        if self.is_so(0.03):
            body["name"] = self.one_of(["h" * 200, "é", "host 1", "=x", *PROVIDERS, *CONSUMERS])
        body["uuid"] = self.spelled(uuid)
        if minor >= 14 and self.is_so(0.55):
            body["parent_provider_uuid"] = self.spelled(self.provider(world))
        return "POST", "/resource_providers", body

    def list_providers(self, world: World, minor: int) -> Any:
        return "GET", f"/resource_providers{self.query(self.provider_words(world, minor))}", None

    def provider_words(self, world: World, minor: int) -> Iterator[tuple[str, str]]:
        if self.is_so(0.15):
            yield "name", self.one_of([*NAMES, "%", "host_", "", PROVIDERS[0], CONSUMERS[0], "=x"])
        if self.is_so(0.15):
            yield "uuid", self.spelled(self.provider(world))
        for _ in range(self.one_of([0, 0, 1, 1, 2]) if minor >= 3 or self.is_so(0.05) else 0):
            yield "member_of", self.member_of(minor)
        if (minor >= 4 or self.is_so(0.05)) and self.is_so(0.4):
            yield "resources", self.resources(world)
        if (minor >= 14 or self.is_so(0.05)) and self.is_so(0.3):
            yield "in_tree", self.spelled(self.provider(world))
        for _ in range(self.one_of([0, 0, 1, 1, 2]) if minor >= 18 or self.is_so(0.05) else 0):
            yield "required", self.required(minor)

    def query(self, words: Any) -> str:
        text = "&".join(f"{key}={quote(said, safe=':,!')}" for key, said in words)
        return f"?{text}" if text else ""

    def member_of(self, minor: int) -> str:
        some = [self.spelled(self.one_of(AGGREGATES)) for _ in range(self.one_of([1, 1, 1, 2]))]
        prefix = "in:" if len(some) > 1 or self.is_so(0.3) else ""
        if len(some) > 1 and self.is_so(0.1):
            prefix = ""
        mark = "!" if self.is_so(0.25 if minor >= 32 else 0.04) else ""
        return f"{mark}{prefix}{','.join(some)}"

    def required(self, minor: int) -> str:
        some = [self.trait() for _ in range(self.one_of([1, 1, 1, 2]))]
        if minor >= 39 and self.is_so(0.3):
            return f"in:{','.join(some)}"
        not_ = 0.25 if minor >= 22 else 0.04
        return ",".join(("!" if self.is_so(not_) else "") + name for name in some)

    def resources(self, world: World) -> str:
        if self.is_so(0.04):
            some = ["", "VCPU", "VCPU:", "VCPU:0", "VCPU:x", "VCPU:-1", ":1", "VCPU:1,", "VCPU:1:1"]
            some += ["VCPU: 1", " VCPU:1", "VCPU:1_0", "VCPU:+1", "VCPU:1.0", "VCPU:1,VCPU:2"]
            return str(self.one_of([*some, "VCPU:2147483648", f"VCPU:{2**63}", f"VCPU:{2**70}"]))
        known = world.classes if world.classes and self.is_so(0.9) else CLASSES
        names = self.chance.sample(known, min(len(known), self.one_of([1, 1, 2])))
        return ",".join(f"{name}:{self.one_of([1, 1, 2, 3, 5, 20])}" for name in names)

    def show_provider(self, world: World, minor: int) -> Any:
        return "GET", f"/resource_providers/{self.spelled(self.provider(world))}", None

    def put_provider(self, world: World, minor: int) -> Any:
        uuid = self.provider(world)
        body: dict[str, Any] = {"name": self.one_of(NAMES)}
        if minor >= 14 and self.is_so(0.5):
            body["parent_provider_uuid"] = self.one_of([None, self.provider(world)])
        return "PUT", f"/resource_providers/{self.spelled(uuid)}", body

    def delete_provider(self, world: World, minor: int) -> Any:
        return "DELETE", f"/resource_providers/{self.spelled(self.provider(world))}", None

    def read_of_provider(self, world: World, minor: int) -> Any:
        what = self.one_of(["inventories", "usages", "aggregates", "traits", "allocations"])
        return "GET", f"/resource_providers/{self.spelled(self.provider(world))}/{what}", None

    # --- inventories ---

    def figures(self) -> dict[str, Any]:
        total = self.one_of([4, 8, 16, 100] if self.is_so(0.98) else [2**31 - 1])
        said: dict[str, Any] = {"total": total}
        if self.is_so(0.3):
            said["reserved"] = self.one_of([0, 1, 2, total, total + 1])
        if self.is_so(0.2):
            said["min_unit"] = self.one_of([1, 1, 1, 2])
        if self.is_so(0.3):
            said["max_unit"] = self.one_of([2, 4, total, total, 2**31 - 1])
            if self.is_so(0.02):
                said["max_unit"] = 2 * total
        if self.is_so(0.2):
            said["step_size"] = self.one_of([1, 1, 2, 2, 3])
        if self.is_so(0.3):
            said["allocation_ratio"] = self.one_of([1.0, 2, 1.5, 0.1, 16.0, 0.3, 1.333333])
            if self.is_so(0.02):
                said["allocation_ratio"] = self.one_of([0.57, 0.29, 0.000001, 4000, 4001, 0, -1])
        return said

    def inventories(self) -> dict[str, Any]:
        return {self.class_name(): self.figures() for _ in range(self.one_of([0, 1, 1, 2, 2, 3]))}

    def put_inventories(self, world: World, minor: int) -> Any:
        uuid = self.provider(world)
        body = {
            "resource_provider_generation": self.generation(world, uuid),
            "inventories": self.inventories(),
        }
        return "PUT", f"/resource_providers/{uuid}/inventories", body

    def one_inventory(self, world: World) -> tuple[str, str]:
        uuid = self.provider(world)
        names = (
            [r.resource_class for r in world.providers[uuid].records]
            if uuid in world.providers
            else []
        )
        name = self.one_of(names) if names and self.is_so(0.85) else self.class_name()
        return uuid, f"/resource_providers/{uuid}/inventories/{name}"

    def put_inventory(self, world: World, minor: int) -> Any:
        uuid, path = self.one_inventory(world)
        said = {"resource_provider_generation": self.generation(world, uuid)}
        return "PUT", path, said | self.figures()

    def post_inventory(self, world: World, minor: int) -> Any:
        uuid = self.provider(world)
        body = {"resource_class": self.class_name()} | self.figures()
        if self.is_so(0.3):
            body["resource_provider_generation"] = self.generation(world, uuid)
        return "POST", f"/resource_providers/{uuid}/inventories", body

    def read_inventory(self, world: World, minor: int) -> Any:
        return "GET", self.one_inventory(world)[1], None

    def delete_inventory(self, world: World, minor: int) -> Any:
        path = self.one_inventory(world)[1]
        return "DELETE", path if self.is_so(0.7) else path.rpartition("/")[0], None

    # --- classes, traits, aggregates ---

    def classes(self, world: World, minor: int) -> Any:
        method = self.one_of(["GET", "GET", "POST", "PUT", "DELETE"])
        name = self.one_of(
            ["CUSTOM_A", "CUSTOM_B", "CUSTOM_A", "CUSTOM_B", "VCPU", "CUSTOM_Z", "x"]
        )
        if method == "POST":
            return method, "/resource_classes", {"name": name}
        if method == "GET" and self.is_so(0.5):
            return method, "/resource_classes", None
        body = (
            {"name": self.one_of(["CUSTOM_A", "CUSTOM_B", "CUSTOM_C"])} if method == "PUT" else None
        )
        if minor >= 7 and self.is_so(0.9):
            body = None
        return method, f"/resource_classes/{name}", body

    def traits(self, world: World, minor: int) -> Any:
        method = self.one_of(["GET", "GET", "PUT", "PUT", "DELETE"])
        name = self.one_of(
            ["CUSTOM_T1", "CUSTOM_T2", "CUSTOM_T1", "CUSTOM_T2", TRAITS[0], "x", "CUSTOM_"]
        )
        if method == "GET" and self.is_so(0.6):
            words = []
            if self.is_so(0.6):
                said = [
                    "in:CUSTOM_T1,HW_CPU_X86_AVX",
                    "startswith:CUSTOM",
                    "x",
                    "in:",
                    "startswith:",
                ]
                said += [
                    "in:CUSTOM_T1,,x",
                    "in:x",
                    "has:CUSTOM",
                    ":CUSTOM",
                    "startswith:HW_CPU_X86_A",
                ]
                said += ["startswith:%", "startswith:custom", "startswith:in:", ""]
                words.append(("name", self.one_of(said)))
            if self.is_so(0.5):
                words.append(("associated", self.one_of(["true", "false", "True", "x"])))
            return method, f"/traits{self.query(words)}", None
        return method, f"/traits/{name}", None

    def provider_traits(self, world: World, minor: int) -> Any:
        uuid = self.provider(world)
        path = f"/resource_providers/{uuid}/traits"
        if self.is_so(0.15):
            return "DELETE", path, None
        traits = [self.trait() for _ in range(self.one_of([0, 1, 1, 2, 3]))]
        if self.is_so(0.02):
            traits.append(DISABLED)
        said = {"resource_provider_generation": self.generation(world, uuid), "traits": traits}
        return "PUT", path, said

    def provider_aggregates(self, world: World, minor: int) -> Any:
        uuid = self.provider(world)
        some: Any = self.some_of(AGGREGATES)  # Placement would keep another spelling as another one
        if minor >= 19:
            said = self.generation(world, uuid)
            some = {"aggregates": some, "resource_provider_generation": said}
        return "PUT", f"/resource_providers/{uuid}/aggregates", some

    # --- allocations ---

    def held(self, world: World, minor: int, nothing: float = 0.0) -> Any:
        """Return what a consumer shall hold, most of it of what there is."""
        found: dict[str, Any] = {}
        if not self.is_so(nothing):
            for _ in range(self.one_of([1, 1, 2])):
                is_full = world.full and self.is_so(0.95)
                uuid = self.one_of(world.full) if is_full else self.provider(world)
                has = list(world.providers[uuid].records) if uuid in world.providers else []
                names = [r.resource_class for r in has if self.is_so(0.7)] or [self.class_name()]
                amounts = [1, 2, 2, 2, 2, 3, 4, 6, 50] if self.is_so(0.98) else [2**31, 2**33]
                uses = {name: self.one_of(amounts) for name in names[:2]}
                found[self.spelled(uuid)] = {"resources": uses}
                if minor >= 12 and self.is_so(0.1):
                    found[uuid] = {"resources": uses, "generation": self.generation(world, uuid)}
        if minor >= 12:
            return found
        return [{"resource_provider": {"uuid": uuid}, **said} for uuid, said in found.items()]

    def claim(
        self, world: World, minor: int, consumer: str, nothing: float = 0.0
    ) -> dict[str, Any]:
        now = world.consumers.get(consumer)
        if now is not None and now.held and self.is_so(0.15):
            uses: dict[str, Any] = {}
            for use in now.held:
                some = uses.setdefault(use.provider_uuid, {"resources": {}})
                some["resources"][use.resource_class] = use.amount
            held = (
                uses
                if minor >= 12
                else [{"resource_provider": {"uuid": u}, **said} for u, said in uses.items()]
            )
        else:
            held = self.held(world, minor, nothing)
        said: dict[str, Any] = {"allocations": held}
        if minor >= 8:
            said |= {"project_id": self.one_of(PROJECTS), "user_id": self.one_of(USERS)}
        if minor >= 28:
            is_at = None if now is None else now.writes
            said["consumer_generation"] = (
                is_at if self.is_so(0.92) else self.one_of([None, 0, 1, 7])
            )
        if minor >= 34 and self.is_so(0.2):
            who = self.one_of(["", "", "1", "_A", "é", "a b"])
            said["mappings"] = {
                who: [self.provider(world)] if self.is_so(0.9) else self.one_of(WRONG)
            }
        if minor >= 38:
            said["consumer_type"] = self.one_of(TYPES)
        return said

    def put_allocations(self, world: World, minor: int) -> Any:
        consumer = self.consumer(world)
        nothing = 0.07 if consumer in world.consumers else 0.01
        body = self.claim(world, minor, consumer, nothing if minor >= 28 else 0)
        return "PUT", f"/allocations/{self.spelled(consumer)}", body

    def post_allocations(self, world: World, minor: int) -> Any:
        some = {self.consumer(world) for _ in range(self.one_of([1, 2, 2]))}
        nothing = {name: 0.2 if name in world.consumers else 0.01 for name in sorted(some)}
        minor_ = max(minor, 12)
        return (
            "POST",
            "/allocations",
            {n: self.claim(world, minor_, n, nothing[n]) for n in nothing},
        )

    def read_allocations(self, world: World, minor: int) -> Any:
        return "GET", f"/allocations/{self.spelled(self.consumer(world))}", None

    def delete_allocations(self, world: World, minor: int) -> Any:
        return "DELETE", f"/allocations/{self.spelled(self.consumer(world))}", None

    def usages(self, world: World, minor: int) -> Any:
        words = [("project_id", self.one_of([*PROJECTS, "nobody"]))] if self.is_so(0.95) else []
        if self.is_so(0.3):
            words.append(("user_id", self.one_of(USERS)))
        if self.is_so(0.5 if minor >= 38 else 0.04):
            words.append(
                ("consumer_type", self.one_of([*TYPES, "all", "NONE", "x", "allx", "ALL"]))
            )
        return "GET", f"/usages{self.query(words)}", None

    def reshape(self, world: World, minor: int) -> Any:
        some = {self.provider(world) for _ in range(self.one_of([1, 2]))}
        inventories = {}
        for uuid in sorted(some):
            has = self.inventories()
            one = world.providers.get(uuid)
            if one is not None and self.is_so(0.7):
                has |= {r.resource_class: {"total": r.total} for r in one.records}
            said = self.generation(world, uuid)
            inventories[uuid] = {"resource_provider_generation": said, "inventories": has}
        held = {self.consumer(world) for _ in range(self.one_of([0, 1, 1, 2]))}
        minor_ = max(minor, 28)
        allocations = {name: self.claim(world, minor_, name, 0.1) for name in sorted(held)}
        return "POST", "/reshaper", {"inventories": inventories, "allocations": allocations}

    def root(self, world: World, minor: int) -> Any:
        return (
            "GET",
            self.one_of(["/", "/", "", "/x", "/traits/x/y", "/resource_providers//traits"]),
            None,
        )

    # --- candidates ---

    def candidates(self, world: World, minor: int) -> Any:
        return (
            "GET",
            f"/allocation_candidates{self.query(self.candidate_words(world, minor))}",
            None,
        )

    def suffixes(self, minor: int) -> list[str]:
        """Return the suffixes of the groups of a query."""
        suffixes = [""]
        if minor >= 25 and self.is_so(0.5):
            names = ["1", "2", "3"] if minor < 33 else ["1", "_A", "-b"]
            if self.is_so(0.03):
                names = self.one_of([["_A", "1", "2"], ["01", "1"], ["a" * 64], ["a" * 65], ["é"]])
            suffixes = names[: self.one_of([1, 2, 2, 3])]
            if self.is_so(0.4):
                suffixes.insert(0, "")
        return suffixes

    def candidate_words(self, world: World, minor: int) -> Iterator[tuple[str, str]]:
        suffixes = self.suffixes(minor)
        without = [s for s in suffixes if s and minor >= 36 and self.is_so(0.2)]
        for suffix in suffixes:
            if suffix not in without and self.is_so(0.98):
                yield f"resources{suffix}", self.resources(world)
            yield from self.conditions(world, minor, suffix)
        if minor >= 25 and (len(suffixes) > 1 or self.is_so(0.1)) and self.is_so(0.95):
            yield "group_policy", self.one_of(["none", "isolate", "none", "isolate", "x"])
        if self.is_in(minor, 16, 0.3):
            yield (
                "limit",
                self.one_of(["1", "1", "2", "2", "10", "1000", "0", "x", "01", str(2**70)]),
            )
        if self.is_in(minor, 35, 0.15):
            yield "root_required", self.required(minor)
        if self.is_in(minor, 36, 1 if without else 0.3):
            yield "same_subtree", ",".join([s for s in suffixes if s] or ["1"])
            if self.is_so(0.1):
                yield "same_subtree", self.one_of(["1, _A", "_A,", "", "x", "1", "-b,1"])

    def conditions(self, world: World, minor: int, suffix: str) -> Iterator[tuple[str, str]]:
        for _ in range(self.one_of([0, 0, 0, 1, 2]) if self.is_in(minor, 17, 1) else 0):
            yield f"required{suffix}", self.required(minor)
        for _ in range(self.one_of([0, 0, 0, 1]) if self.is_in(minor, 21, 1) else 0):
            yield f"member_of{suffix}", self.member_of(minor)
        if self.is_in(minor, 31, 0.15):
            yield f"in_tree{suffix}", self.spelled(self.provider(world))

    def is_in(self, minor: int, since: int, share: float) -> bool:
        """Return whether to say a word, seldom one that there is not yet."""
        return (minor >= since or self.is_so(0.03)) and self.is_so(share)


def _places(body: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values in a body."""
    keys: Any = ()
    if isinstance(body, dict):
        keys = body
    elif isinstance(body, list):
        keys = range(len(body))
    for key in keys:
        yield (*at, key)
        yield from _places(body[key], (*at, key))


#: Who makes a request, and how often.
_FIRST = {
    Asker.make_provider: 12,
    Asker.put_inventories: 5,
    Asker.classes: 2,
    Asker.traits: 2,
    Asker.list_providers: 1,
    Asker.usages: 1,
}
_ROUTES = {
    Asker.make_provider: 5,
    Asker.list_providers: 6,
    Asker.show_provider: 2,
    Asker.put_provider: 3,
    Asker.delete_provider: 2,
    Asker.read_of_provider: 8,
    Asker.put_inventories: 8,
    Asker.put_inventory: 2,
    Asker.post_inventory: 3,
    Asker.read_inventory: 1,
    Asker.delete_inventory: 2,
    Asker.classes: 4,
    Asker.traits: 4,
    Asker.provider_traits: 5,
    Asker.provider_aggregates: 5,
    Asker.put_allocations: 13,
    Asker.post_allocations: 5,
    Asker.read_allocations: 4,
    Asker.delete_allocations: 3,
    Asker.usages: 4,
    Asker.reshape: 4,
    Asker.root: 1,
    Asker.candidates: 10,
}
