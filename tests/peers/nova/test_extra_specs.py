"""A flavor asks here for what the real Nova asks of Placement with it.

Nova makes a query string of a flavor and an image; read by us, it must be the request that we make
of the same flavor. A flavor whose string Placement would refuse, we refuse. Words that Nova
ignores, we refuse by their key: without that key both must agree again, and Nova must say the same
as before.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from resource_objects import exceptions
from resource_objects.interop.nova.flavors import flavor_request
from resource_objects.interop.nova.rules import InvalidNovaInput, NovaRule
from resource_objects.requests import Request, query

os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "true")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # other libraries' own, at import
    import nova.conf
    from nova import objects
    from nova.scheduler import utils

    objects.register_all()

pytestmark = pytest.mark.filterwarnings("ignore")

Words = dict[str, str]
A, B = "CUSTOM_A", "CUSTOM_B"
MANY = settings(
    max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
#: What Nova ignores, with a warning at most.
IGNORED = (
    NovaRule.INVALID_REQUEST_KEY,
    NovaRule.UNKNOWN_FLAVOR_RESOURCE,
    NovaRule.RESOURCE_NOT_COUNTED,
    NovaRule.INVALID_RESOURCE_AMOUNT,
    NovaRule.INVALID_TRAIT_VALUE,
    NovaRule.INVALID_GROUP_POLICY,
    NovaRule.UNKNOWN_FLAVOR_TRAIT,
)


@pytest.fixture(scope="module", autouse=True)
def ready() -> None:
    """Let nova read no configuration file."""
    nova.conf.CONF([], project="nova", default_config_files=[])


SIZES = {"vcpus": 4, "memory_mb": 2048, "root_gb": 20, "ephemeral_gb": 1, "swap_mb": 1025}


def string(specs: Words, image: Words, sizes: dict[str, int] = SIZES) -> str:
    """Return Nova's query string."""
    flavor = objects.Flavor(
        vcpus=sizes["vcpus"],
        memory_mb=sizes["memory_mb"],
        root_gb=sizes["root_gb"],
        ephemeral_gb=sizes["ephemeral_gb"],
        swap=sizes["swap_mb"],
        extra_specs=dict(specs),
    )
    spec = objects.RequestSpec(
        flavor=flavor,
        image=objects.ImageMeta.from_dict({"properties": dict(image)}),
        is_bfv=False,
        requested_resources=[],
        request_level_params=objects.RequestLevelParams(),
    )
    text: str = utils.ResourceRequest.from_request_spec(spec).to_querystring()
    return text


def theirs(specs: Words, image: Words) -> Request | None:
    """Return what Nova asks, None if Placement refuses it."""
    try:
        return in_order(query.parse(string(specs, image)).request)
    except exceptions.InvalidInput:
        return None


def ours(specs: Words, image: Words) -> Request | InvalidNovaInput:
    """Return what we ask, or the error."""
    try:
        return in_order(flavor_request(**SIZES, extra_specs=specs, image=image))
    except InvalidNovaInput as error:
        return error


def in_order(request: Request) -> Request:
    """Return a request whose groups stand in the order of their suffixes: Nova sorts its keys."""
    named = sorted(request.named, key=lambda group: group.suffix)
    return request.replace(groups=(request.unnamed, *named))


def compare(specs: Words, image: Words) -> Iterator[str]:
    """Check that both ask the same, and yield what had to be left out for it."""
    here = ours(specs, image)
    they = theirs(specs, image)
    if isinstance(here, Request):
        assert here == they, (specs, image)
        yield "asked"
        return
    if they is None:
        yield f"refused: {here.rule.name}"
        return
    assert here.rule in IGNORED, (specs, image, here)
    yield f"ignored by nova: {here.rule.name}"
    key = str(here.value) if here.rule is NovaRule.INVALID_REQUEST_KEY else here.what
    of_image = key.endswith(" of the image")
    source = image if of_image else specs
    without = {name: value for name, value in source.items() if name != key.split(" of ")[0]}
    specs, image = (specs, without) if of_image else (without, image)
    assert len(without) < len(source)
    assert theirs(specs, image) == they, key
    yield from compare(specs, image)


RESOURCES = st.tuples(
    st.sampled_from(["resources", "resources", "resources1", "resources_A", "resources$"]),
    st.sampled_from(
        ["VCPU", "PCPU", "MEMORY_MB", "DISK_GB", "PGPU", "CUSTOM_X", "VCPUS", "vcpu", ""]
    ),
).map(":".join)
TRAITS = st.tuples(
    st.sampled_from(["trait", "trait", "trait1", "trait_A", "traits", f"trait{'x' * 65}"]),
    st.sampled_from([A, B, "HW_CPU_X86_AVX2", "HW_NO", "CUSTOM_a"]),
).map(":".join)
SPECS = st.builds(
    lambda amounts, traits, others: {**amounts, **traits, **others},
    st.dictionaries(RESOURCES, st.sampled_from(["0", "1", "4", "4", "007", "-1", "many", ""]),
                    max_size=4),
    st.dictionaries(TRAITS, st.sampled_from(["required", "forbidden", "forbidden", "maybe", ""]),
                    max_size=2),
    st.dictionaries(st.sampled_from(["group_policy", "quota:cpu_shares", "capabilities:trait"]),
                    st.sampled_from(["none", "isolate", "apart"]), max_size=2),
)  # fmt: skip
IMAGES = st.dictionaries(
    st.sampled_from([f"trait:{A}", f"trait:{B}", "trait:HW_NO", "img_x"]),
    st.sampled_from(["required", "required", "forbidden"]),
    max_size=1,
)


@MANY
@given(SPECS, IMAGES)
def test_a_flavor_asks_for_what_nova_asks(specs: Words, image: Words) -> None:
    for end in compare(specs, image):
        event(end)


@MANY
@given(
    st.fixed_dictionaries(
        {
            "vcpus": st.integers(1, 64),
            "memory_mb": st.integers(1, 9999),
            "root_gb": st.integers(0, 99),
            "ephemeral_gb": st.integers(0, 9),
            "swap_mb": st.integers(0, 4097),
        }
    )
)
def test_sizes_are_what_nova_makes_of_them(sizes: dict[str, int]) -> None:
    assert flavor_request(**sizes) == query.parse(string({}, {}, sizes)).request


# --- what is read otherwise ---------------------------------------------------------------------


@pytest.mark.parametrize("text", ["+2", " 2", "1_0"])
def test_nova_reads_a_number_as_python_does(text: str) -> None:
    key = "resources:CUSTOM_X"
    assert theirs({key: text}, {}) == theirs({key: str(int(text))}, {})
    assert ours({key: text}, {}).rule is NovaRule.INVALID_RESOURCE_AMOUNT


def test_nova_ignores_the_older_prefix() -> None:
    assert theirs({"resource:VCPU": "1"}, {}) == theirs({}, {}) == ours({}, {})
    assert ours({"resource:VCPU": "1"}, {}) == ours({"resources:VCPU": "1"}, {})
    both = {"resource:VCPU": "1", "resources:VCPU": "2"}
    assert theirs(both, {}) == theirs({"resources:VCPU": "2"}, {})
    assert ours(both, {}).rule is NovaRule.RESOURCE_SAID_TWICE


def test_two_names_in_one_key_are_two_to_placement() -> None:
    two = theirs({f"trait:{A},{B}": "required", "resources:CUSTOM_X:1,CUSTOM_Y": "2"}, {})
    assert two is not None
    assert two.unnamed.required == {A, B}
    assert ours({f"trait:{A},{B}": "required"}, {}).rule is NovaRule.UNKNOWN_FLAVOR_TRAIT
    one_key = {"resources:CUSTOM_X:1,CUSTOM_Y": "2"}
    assert ours(one_key, {}).rule is NovaRule.UNKNOWN_FLAVOR_RESOURCE


def test_words_are_told_apart() -> None:
    """Of a few hundred flavors many are asked, many refused, and some say what Nova ignores."""
    ends: Counter[str] = Counter()

    @settings(max_examples=300, database=None, deadline=None)
    @given(SPECS, IMAGES)
    def count(specs: Words, image: Words) -> None:
        ends.update(end.split(":")[0] for end in compare(specs, image))

    count()
    assert min(ends[end] for end in ("asked", "refused", "ignored by nova")) > 20, ends
