"""A checker of the answer in one line, of the stages and of the outlooks, by the rows alone.

The line is read as a person reads it: each of its forms is parsed, and what it claims of how many
hosts has to be true of as many at least. A stage may only look at the hosts that the ones before it
left; how many these are has to lie between those that meet each part so far, by the rows, and those
that fail none of the parts that no figure is about.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from resource_objects.reasons import Reason, Rule
from resource_objects.requests import RequestGroup
from tests.support.enumerator import HostReading
from tests.support.told import LOCATED, Rows, condition_of, counts_of, words_of

#: What the line begins with: how many hosts it is about, and what none of them does.
_BEGINS = (
    r"(?:(?P<every>no host)|none of the (?P<some>[\d,]+) hosts that are left"
    r"|(?P<one>not even the host left)) "
)
_LINE = re.compile(
    _BEGINS + r"(?P<claim>.*?)"
    r"(?: \((?:(?P<fails>[\d,]+) others? fails? before)\))?"
    r"(?:; (?P<then>[^;]*if nobody held anything))?\Z"
)
_SEEMS = re.compile(
    r"(?:(?P<each>each host seems)|(?P<some>[\d,]+) of [\d,]+ hosts? seems?) "
    r"to have room for each part of it, none can give all: (?P<host>.*)"
)
_GROUP = re.compile(r" for group (?P<group>_\w+(?:, _\w+)*)")
_MOST = re.compile(
    r"has (?P<name>\w+)=(?P<amount>\d+)(?P<words>.*?) free(?: within the limits)?, "
    r"the most is (?P<most>\d+) of (?P<where>\S+)"
)
_NONE = re.compile(
    r"has any (?P<name>\w+)(?P<words>.*?) free(?: within the limits)?, requested (?P<amount>\d+)"
)
_THOUGH = re.compile(
    r"can give (?P<name>\w+)=(?P<amount>\d+)(?P<words>.*?)(?: within the limits)?, "
    r"though (?P<where>\S+) has (?P<most>\d+) free"
)
_THEN = re.compile(
    r"(?P<none>none could, even)|(?P<each>each could)|(?P<it>it could)"
    r"|(?P<most>at most )?(?P<count>[\d,]+) of (?P<hosts>[\d,]+) hosts? could"
)


class Line:
    """The answer in one line, of hosts that are told of."""

    def __init__(self, rows: Rows, hosts: Sequence[str], lines: Mapping[str, str]) -> None:
        """:param hosts: that are told of: refused ones, if nobody can hold it

        :param lines: what is told of each
        """
        self.rows, self.kept, self.hosts, self.lines = rows, rows.kept, hosts, lines
        self.readings = {
            host: HostReading(rows.kept, rows.by_name[host], rows.rules, rows.trees)
            for host in hosts
        }
        for host, reading in self.readings.items():
            if rows.rules.host_gives and self.kept.rows[rows.by_name[host]].is_sharing:
                reading.everybody = reading.own

    def faults(self, line: str, could: Collection[str], *, is_exact: bool = True) -> Iterator[str]:
        """Yield what is wrong with a line where nobody can hold what is asked.

        :param could: the hosts that could if nobody held anything
        :param is_exact: whether these are all
        """
        self.is_exact = is_exact
        if line == "there are no hosts":
            if self.hosts:
                yield "there are hosts"
            return
        seems = _SEEMS.match(line)
        if seems is not None:
            told, _, then = seems["host"].rpartition("; ")
            if told not in self.lines.values():
                yield f"no host is told so: {told}"
            yield from self._then(then, could)
            return
        found = _LINE.fullmatch(line)
        if found is None:
            yield "nobody can read it"
            return
        some = found["some"] and int(found["some"].replace(",", ""))
        left = len(self.hosts) if found["every"] else 1 if found["one"] else int(some)
        if len(self.hosts) - left != int((found["fails"] or "0").replace(",", "")):
            yield f"it is about {left} of {len(self.hosts)}"
        yield from self._claim(found["claim"], left)
        if found["then"]:
            yield from self._then(found["then"], could)

    def _then(self, text: str, could: Collection[str]) -> Iterator[str]:
        found = _THEN.match(text)
        if found is None:
            yield f"nobody can read {text!r}"
        elif found["none"] and could:
            yield f"{could} could"
        elif not self.is_exact:
            return
        elif (found["each"] or found["it"]) and len(could) < len(self.hosts):
            yield f"only {could} could"
        elif found["count"]:
            count = int(found["count"].replace(",", ""))
            is_wrong = len(could) > count if found["most"] else len(could) != count
            if is_wrong or int(found["hosts"].replace(",", "")) != len(self.hosts):
                yield f"{len(could)} of {len(self.hosts)} could"

    def _claim(self, claim: str, left: int) -> Iterator[str]:
        """What none of so many hosts does, as many do not do."""
        named = _GROUP.search(claim)
        suffixes = named["group"].split(", ") if named else [""]
        groups = [g for g in self.rows.request.groups if g.suffix in suffixes]
        claim = _GROUP.sub("", claim)
        group = groups[0] if groups else self.rows.request.unnamed
        for form, check in ((_MOST, self._most), (_NONE, self._most), (_THOUGH, self._though)):
            found = form.fullmatch(claim)
            if found is not None:
                yield from check(group, found.groupdict(), left)
                return
        fails = self._fails(claim, group)
        if fails is None:
            yield f"nobody can read {claim!r}"
        elif (count := sum(map(fails, self.hosts))) < left:
            yield f"it is so of {count} hosts alone, not of {left}"

    def _fails(self, claim: str, group: RequestGroup) -> Callable[[str], bool] | None:
        """Return what tells of a host that it does not do what a claim is about."""
        if claim in ("can give all groups",) or claim.startswith(("has room for ", "passes ")):
            return lambda host: True  # each is refused, and told why
        if claim == "is in service":
            return lambda host: self.rows.is_disabled(self.rows.by_name[host])
        itself = re.fullmatch(r"(has|is without) (\S+) itself", claim)
        if itself:
            wants = itself[1] == "has"
            return lambda host: (itself[2] in self._root(host).traits) is not wants
        if claim.startswith(("is in ", "is outside ", "is of the tree of ")):
            word, label = claim.removeprefix("is ").rsplit(" ", 1)
            return lambda host: not self._one(group, host, word, label)(self.rows.by_name[host])
        anything = re.fullmatch(r"has (?:any )?((?:\w+(?: (?:and|or) )?)+?)((?: \S.*)?)", claim)
        if anything is None:
            return None
        is_any = claim.startswith("has any ")
        classes = re.split(r" (?:and|or) ", anything[1].strip())
        is_or = " or " in anything[1]
        words = anything[2].strip().removesuffix("among those that may give").strip()

        def fails(host: str) -> bool:
            able = [
                n
                for n in self.readings[host].everybody
                if is_any
                or all(self._one(group, host, word, label)(n) for word, label in words_of(words))
            ]
            keeps = [[name == "provider" or self._keeps(n, name) for name in classes] for n in able]
            return not any(any(some) if is_or else all(some) for some in keeps)

        return fails

    def _keeps(self, number: int, name: str) -> bool:
        if name in LOCATED:
            table = self.rows.columns.kinds
            return (number, name) in set(zip(table.provider_id, table.resource_class, strict=True))
        return name in self.kept.rows[number].stocks and (number, name) not in self.rows.parts

    def _root(self, host: str) -> Any:
        return self.kept.rows[self.rows.by_name[host]]

    def _one(self, group: RequestGroup, host: str, word: str, label: str) -> Callable[[int], bool]:
        return condition_of(self.rows, self.readings[host], group, word, label)

    # --- amounts ---

    def _free(self, group: RequestGroup, host: str, name: str, words: str) -> dict[int, int]:
        """Return what is left at each who may give a class to a host."""
        found = re.match(r" beside ((?:[\w=]+(?: and )?)+)", words)
        beside = found[1].strip().split(" and ") if found else []
        rest = words[found.end() :] if found else words
        return {
            n: max(0, self.kept.left((n, name)))
            for n in self.readings[host].everybody
            if self._keeps(n, name)
            and all(self._one(group, host, *each)(n) for each in words_of(rest.strip()))
            and all(self._is_beside(n, one) for one in beside)
        }

    def _is_beside(self, number: int, said: str) -> bool:
        """Return whether a provider keeps another class, or gives so much of it."""
        name, _, amount = said.partition("=")
        stock = self.kept.rows[number].stocks.get(name)
        if stock is None or (number, name) in self.rows.parts:
            return False
        left = self.kept.left((number, name))
        return not amount or (stock.gives(int(amount)) and left >= int(amount))

    def _together(self, group: RequestGroup, host: str, name: str, words: str) -> int:
        """Return the most that one, or devices of the host together, have left."""
        free = self._free(group, host, name, words)
        if group.suffix or not self.rows.rules.splits_devices:
            return max(free.values(), default=0)
        own = set(self.readings[host].own)
        of_kinds = self.rows.of_cells
        devices = [n for n in free if n in own - of_kinds and self.kept.may_split(n, name)]
        return max(sum(free[n] for n in devices), *free.values(), 0)

    def _most(self, group: RequestGroup, said: Mapping[str, str], left: int) -> Iterator[str]:
        """None of so many hosts has an amount, and the most that there is is of who is named."""
        if said.get("where") not in {None, *self.rows.by_name}:
            yield f"nobody is called {said['where']}"
            return
        name, amount, most = said["name"], int(said["amount"]), int(said.get("most") or 0)
        if counts_of(group).get(name) != amount and not self._is_implied(group, name, amount):
            yield f"{counts_of(group).get(name)} is asked"
        figures = {host: self._together(group, host, name, said["words"]) for host in self.hosts}
        if sum(figure <= most for figure in figures.values()) < left:
            yield f"there is more: {figures}"
        if most >= amount:
            yield "so much is free"
        if most and not any(
            most in (figures[host] if said["where"] == host else -1, free.get(number))
            for host in self.hosts
            for free in [self._free(group, host, name, said["words"])]
            for number in [self.rows.by_name[said["where"]]]
        ):
            yield f"{said['where']} has not {most}"

    def _is_implied(self, group: RequestGroup, name: str, amount: int) -> bool:
        located = [a for kind, a in group.resources.by_name() if kind in LOCATED]
        return any(name in getattr(one, "located", {}) for one in located)

    def _though(self, group: RequestGroup, said: Mapping[str, str], left: int) -> Iterator[str]:
        """Somebody has so much, and a unit rule forbids it, or it is used elsewhere."""
        where, most = said["where"], int(said["most"])
        if most < int(said["amount"]):
            yield "it is less"
        number = self.rows.by_name[where]
        places = [self._free(group, host, said["name"], said["words"]) for host in self.hosts]
        if not any(free.get(number) == most for free in places) and not any(
            self._together(group, host, said["name"], said["words"]) == most
            for host in self.hosts
            if host == where
        ):
            yield f"{where} has not {most}"


# --- stages, and the nearest ----------------------------------------------------------------------


def stage_faults(stages: Sequence[Any], answer: str) -> Iterator[str]:
    """Yield where a stage does not begin with the hosts of the one before it, or leaves more.

    The stage that leaves no host and the answer report the same largest amount.
    """
    before = stages[0].before if stages else 0
    for stage in stages:
        if stage.before != before or not 0 <= stage.after <= before:
            yield f"{before} hosts were left: {stage}"
        before = stage.after
    last = next((stage for stage in stages if stage.before and not stage.after), None)
    most = re.search(r", the most is ([0-9]+) of |, though .* has ([0-9]+) free", answer)
    if last is not None and most and last.most != int(most[1] or most[2]):
        yield f"{last}, but the answer is: {answer}"


def nearest_faults(
    nearest: Sequence[Any], by_host: Mapping[str, Sequence[Reason]]
) -> Iterator[str]:
    """Yield what is wrong with the hosts that come nearest: their reasons, and their order.

    First those that could if nobody held anything; of each, those that lack the fewest qualities,
    then the least of what is asked, as parts of it. What is disabled counts where nothing else is
    told.
    """
    if len(nearest) < min(9, len(by_host)):
        yield f"these are {len(nearest)} of {len(by_host)}"
    for one in nearest:
        if tuple(by_host.get(one.host, ())) != one.reasons:
            yield f"{one.host} is told otherwise"
    keys = [(one.outlook.value == "never", *_lacks(one.reasons)) for one in nearest]
    if keys != sorted(keys):
        yield f"the order is not that of {keys}"
    rest = [_lacks(some) for host, some in by_host.items() if host not in {o.host for o in nearest}]
    if rest and len(nearest) < 9 and min(rest) < max(key[1:] for key in keys):
        yield "others come nearer"


def _lacks(reasons: Sequence[Reason]) -> tuple[int, float]:
    reasons = [one for one in reasons if one.disabled is None] or reasons
    of_amounts = [one for one in reasons if one.rule in _OF_AMOUNTS]
    lack = sum(1 - max(0, one.bound - one.used) / max(1, one.requested) for one in of_amounts)
    return len(reasons) - len(of_amounts), round(lack, 9)


_OF_AMOUNTS = frozenset(
    {
        *(Rule.CAPACITY, Rule.LIMIT, Rule.PHYSICAL, Rule.NOT_WHOLE, Rule.NEAR),
        *(Rule.ISOLATED, Rule.ONE_PROVIDER, Rule.AFFINITY, Rule.AT_ONCE),
        *(Rule.HOST_CELLS, Rule.TOGETHER),
    }
)
