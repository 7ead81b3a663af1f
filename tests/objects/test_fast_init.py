"""``fast_init``: the same constructor as that of ``dataclasses``, faster."""

from __future__ import annotations

import dataclasses
import inspect
import pickle

import pytest

from resource_objects._dataclass import fast_init


@dataclasses.dataclass(frozen=True, slots=True)
class Plain:
    """A value as ``dataclasses`` makes it."""

    name: str
    amount: int = 1
    doubled: int = dataclasses.field(init=False, compare=False)

    def __post_init__(self) -> None:
        if self.amount < 0:
            raise ValueError(self.amount)
        object.__setattr__(self, "doubled", 2 * self.amount)


@fast_init
@dataclasses.dataclass(frozen=True, slots=True)
class Direct(Plain):
    """The same, made by its slots."""


def test_a_value_that_sets_its_slots_is_made_as_it_was() -> None:
    assert inspect.signature(Direct) == inspect.signature(Plain)
    assert Direct.__init__.__doc__ == Plain.__init__.__doc__
    made = Direct("a", amount=2)
    assert (made.name, made.amount, made.doubled) == ("a", 2, 4)
    assert made == Direct("a", 2)
    assert made != Direct("a")
    assert hash(made) == hash(Direct("a", 2))
    assert dataclasses.replace(made, amount=3).doubled == 6
    assert pickle.loads(pickle.dumps(made)) == made  # our own
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.amount = 3  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"Direct\.__init__\(\) missing 1 required .*'name'"):
        Direct()  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="-1"):
        Direct("a", -1)
