"""People of a lab as a process: they claim, use what they are told to have, and give it back.

:func:`main` plays people who work at the same time, by the command alone. Whoever has a card makes
a file of it that nobody else can make meanwhile, so that the file system, which knows nothing of
the ledger, judges whether a card is given twice.
"""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import random
import shlex
from collections.abc import Iterable, Iterator, Sequence

from resource_objects.cli.main import main as run

#: Exit status of a claim that others are in the way of.
BUSY = 75
HALVES = 2


class GivenTwice(AssertionError):
    """Somebody was told to have a card that somebody else has."""


class Cards:
    """The cards of a lab as files of a folder, two for each: a half is one, a whole is both."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._mine: dict[str, list[pathlib.Path]] = {}

    def take(self, person: str, environment: dict[str, str]) -> None:
        """Take what the environment of a job says that it has.

        :raises GivenTwice: if somebody else has it
        """
        host = environment["RESOURCE_OBJECTS_HOST"]
        parts = dict(
            part.split(":")
            for part in environment["RESOURCE_OBJECTS_CUDA_PARTS"].split(",")
            if part
        )
        mine = self._mine.setdefault(person, [])
        for card in filter(None, environment["CUDA_VISIBLE_DEVICES"].split(",")):
            wanted = 1 if card in parts else HALVES
            for half in range(HALVES):
                path = self._folder / f"{host}.gpu{card}.{half}"
                with contextlib.suppress(FileExistsError):
                    os.close(os.open(path, os.O_CREAT | os.O_EXCL))
                    mine.append(path)
                    wanted -= 1
                if not wanted:
                    break
            if wanted:
                raise GivenTwice(f"{person}: card {card} of {host}")

    def leave(self, person: str) -> None:
        """Give back what a person has."""
        for path in self._mine.pop(person, ()):
            path.unlink()


def command(*argv: str) -> tuple[int, list[str]]:
    """Run a command in this process; return its status, and the lines it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        status = run(argv)
    return status, printed.getvalue().splitlines()


def told(lines: Iterable[str]) -> dict[str, str]:
    """Return the variables that lines for a shell set."""
    words = (shlex.split(line.removeprefix("export "))[0] for line in lines)
    return dict(word.split("=", 1) for word in words)


def claim(cards: Cards, person: str, wants: str, *more: str) -> bool:
    """Let somebody claim and take it; return whether it was to be had."""
    status, lines = command("claim", f"{person}-job", wants, "--user", person, "--env", *more)
    if status == BUSY:
        return False
    assert status == 0, lines
    cards.take(person, told(lines))
    return True


def release(cards: Cards, person: str) -> None:
    """Let somebody give back what they have."""
    cards.leave(person)
    status, lines = command("release", f"{person}-job", "--actor", person)
    assert status == 0, lines


def play(cards: Cards, wants: dict[str, str], seed: int, rounds: int) -> Iterator[str]:
    """Let people work, all at the same time, and yield who got something."""
    chance = random.Random(seed)
    for _ in range(rounds):
        people = sorted(wants)
        chance.shuffle(people)
        served = [person for person in people if claim(cards, person, wants[person])]
        status, lines = command("usage", "hosts")
        assert status == 0, lines
        yield from served
        for person in served:
            release(cards, person)


def main(argv: Sequence[str]) -> None:
    """Let people of ``FOLDER SEED ROUNDS PERSON=AMOUNTS ...`` work; print who got something."""
    folder, seed, rounds, *people = argv
    wants = dict(one.split("=", 1) for one in people)
    for person in play(Cards(pathlib.Path(folder)), wants, int(seed), int(rounds)):
        print(person)
