"""Workers of the service are killed while clients write: what was acknowledged is there, once."""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import signal
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

import resource_objects as ro
from resource_objects.backends.sql.backend import SQLBackend
from tests.support.checker import problems
from tests.support.patience import until
from tests.support.served import Served, served

HOSTS = [str(uuid.UUID(int=number)) for number in (1, 2)]
#: Fewer than what all clients want at once: some are refused.
CPUS = 12

Holds = dict[str, dict[str, int]]


@dataclasses.dataclass
class Told:
    """What a client knows of one of its consumers."""

    #: what it may hold: one thing if the last write was answered, more if nobody knows
    may_hold: list[Holds]
    generation: int | None = None
    #: it held nothing when somebody looked; a database may yet finish what a killed process began
    left: bool = False


class Client(threading.Thread):
    """Writes for consumers of its own, over connections of its own."""

    def __init__(self, service: Served, seed: int, stop: threading.Event) -> None:
        super().__init__()
        self._service, self._stopped, self._chance = service, stop, random.Random(seed)
        self.consumers: dict[str, Told] = {}
        self.acknowledged = self.refused = self.unsure = 0
        self.wrong: list[str] = []

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._chance.getrandbits(128), version=4))


class Repeating(Client):
    """Claims by the native API, and sends the same operation again until it is answered.

    So it knows of each consumer what it holds, however many answers were lost.
    """

    def run(self) -> None:
        while not self._stopped.is_set():
            held = [name for name, one in self.consumers.items() if one.may_hold[0]]
            if len(held) > 2:
                self._release(self._chance.choice(held))
            else:
                self._claim(f"job-{self._uuid()}")

    def _claim(self, consumer: str) -> None:
        body = {"consumer": consumer, "request": "VCPU=2", "operation": self._uuid()}
        status, said, was_lost = self._until_answered("POST", "/ro/claims", body)
        told = self.consumers[consumer] = Told([{}])
        if status == 201:
            self.acknowledged += 1
            told.may_hold = [_holds(said)]
        elif status != 409:
            self.wrong.append(f"{consumer}: {status} {said}")
        else:
            self.refused += 1
            if was_lost:  # a database may yet finish what a killed process began
                told.may_hold += [{host: {"VCPU": 2}} for host in HOSTS]

    def _release(self, consumer: str) -> None:
        path = f"/ro/consumers/{consumer}?operation={self._uuid()}"
        status, said, _ = self._until_answered("DELETE", path)
        told = self.consumers[consumer]
        if status != 200 or _holds(said) not in told.may_hold:
            self.wrong.append(f"{consumer} held {told.may_hold}: {status} {said}")
        self.acknowledged += 1
        told.may_hold = [{}]

    def _until_answered(self, method: str, path: str, body: Any = None) -> tuple[int, Any, bool]:
        """Return status and body of the first answer, and whether one was lost before."""
        was_lost = False
        while True:
            try:
                status, said = self._service.ask(method, path, body)
            except OSError:
                was_lost = True
                self.unsure += 1
                continue
            if status != 503:
                return status, said, was_lost


def _holds(claim: Any) -> Holds:
    """Return what a claim of the native API holds."""
    return {one["uuid"]: {one["resource_class"]: one["amount"]} for one in claim["allocations"]}


class Placements(Client):
    """Claims and releases by Placement's API."""

    def run(self) -> None:
        while not self._stopped.is_set():
            known = ((name, one) for name, one in self.consumers.items() if len(one.may_hold) == 1)
            held = [name for name, one in known if one.may_hold[0]]
            for name, one in self.consumers.items():
                if len(one.may_hold) > 1 and not one.left:
                    self._settle(name, one)
            if len(held) > 3 or (held and self._chance.random() < 0.4):
                self._write(self._chance.choice(held), {})
            else:
                amounts = {host: {"VCPU": self._chance.randint(1, 2)} for host in HOSTS}
                self._write(self._uuid(), amounts)

    def _write(self, consumer: str, holds: Holds) -> None:
        """Let a consumer hold something, or nothing; of nobody's answer nobody knows."""
        told = self.consumers.setdefault(consumer, Told([{}]))
        body = {
            "allocations": {host: {"resources": amounts} for host, amounts in holds.items()},
            "project_id": "lab",
            "user_id": "ann",
            "consumer_type": "JOB",
            "consumer_generation": told.generation,
        }
        try:
            status, said = self._service.ask("PUT", f"/allocations/{consumer}", body)
        except OSError:
            self.unsure += 1
            told.may_hold.append(holds)
            return
        if status == 204:
            self.acknowledged += 1
            told.may_hold = [holds]
            if holds:
                self._look(consumer, told)
        elif status in (409, 503):
            self.refused += 1
        else:
            self.wrong.append(f"{consumer}: {status} {said}")

    def _settle(self, consumer: str, told: Told) -> None:
        """Give back what a write took that nobody answered, or else all claims would be refused."""
        if self._look(consumer, told):
            self._write(consumer, {})
        else:
            told.left = True

    def _look(self, consumer: str, told: Told) -> Holds:
        """Ask what it holds until somebody answers."""
        while True:
            try:
                status, said = self._service.ask("GET", f"/allocations/{consumer}")
            except OSError:
                continue
            if status == 200:
                break
        found = {host: one["resources"] for host, one in said["allocations"].items()}
        if found not in told.may_hold:
            self.wrong.append(f"{consumer} holds {found}, and may hold {told.may_hold}")
        told.generation = said.get("consumer_generation")
        return found


def storm(url: str, folder: Path, workers: int, clients: int, kills: int, pause: float) -> None:
    """Kill workers while clients write, and compare what they were told with what is kept."""
    with ro.connect(url) as ledger:
        for number, host in enumerate(HOSTS):
            ledger.sync(ro.Provider(f"host{number}", f"VCPU={CPUS}", uuid=host))
    chance, stop = random.Random(kills), threading.Event()
    with served(folder, url, "--workers", str(workers)) as service:
        kinds = itertools.cycle((Placements, Repeating))
        started = [
            kind(service, seed, stop) for seed, kind in zip(range(clients), kinds, strict=False)
        ]
        for one in started:
            one.start()
        try:
            for _ in range(kills):
                before = sum(one.acknowledged for one in started)
                until(lambda seen=before: sum(one.acknowledged for one in started) > seen + 2)
                time.sleep(chance.random() * pause)  # so that it meets them at any instruction
                os.kill(chance.choice(service.workers), signal.SIGKILL)
                until(lambda: len(service.workers) == workers)
        finally:
            stop.set()
            for one in started:
                one.join(60)
        assert not any(one.is_alive() for one in started)
        assert "Traceback" not in service.log
    wrong = [text for one in started for text in one.wrong]
    assert not wrong
    found = kept(url)
    for one in started:
        for name, told in one.consumers.items():
            assert found.pop(name, {}) in told.may_hold, name
    assert not found, "nobody asked for these"
    assert problems(url) == []
    with ro.connect(url) as ledger:
        assert not ledger.audit()
    assert sum(one.acknowledged for one in started) > 2 * kills


def kept(url: str) -> dict[str, Any]:
    """Return what is held, as the ledger tells it."""
    found: dict[str, Any] = {}
    with ro.connect(url) as ledger:
        for consumer in ledger.consumers():
            for one in consumer.allocations:
                mine = found.setdefault(consumer.name, {}).setdefault(one.provider_uuid, {})
                mine[one.resource_class] = one.amount.value
    return found


@pytest.mark.law(2, 4)
def test_a_few_killed_workers_lose_nothing(tmp_path: Path) -> None:
    storm(f"sqlite:///{tmp_path}/lab.db", tmp_path, workers=2, clients=4, kills=3, pause=0.02)


@pytest.mark.long
@pytest.mark.law(2, 4)
def test_workers_that_are_killed_again_and_again_lose_nothing(
    database_url: str, tmp_path: Path
) -> None:
    SQLBackend.upgrade_database(database_url)
    storm(database_url, tmp_path, workers=4, clients=8, kills=40, pause=0.4)
