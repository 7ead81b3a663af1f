"""The search and the naive reference give the same answer, on generated trees."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resource_objects.providers import Provider, diff
from resource_objects.providers.columns import Columns
from resource_objects.providers.provider import Share
from resource_objects.reasons import Rule
from resource_objects.requests import Request
from resource_objects.resources import IntegerInventory, Inventories
from resource_objects.search import Snapshot
from tests.search import generated
from tests.support import naive_search
from tests.support.columns import columns_of
from tests.support.lengths import examples, some

TRAITS, CLASSES, SHARING = generated.TRAITS, generated.CLASSES, generated.SHARING


@st.composite
def inventories(draw):
    total = draw(st.integers(1, 4))
    least = draw(st.sampled_from([1, 1, 1, 2, 3]))
    return IntegerInventory(
        total,
        reserved=draw(st.sampled_from([0, 0, 0, 1])),
        min_unit=least,
        max_unit=draw(st.none() | st.integers(least, total)) if least <= total else None,
        step_size=draw(st.sampled_from([1, 1, 1, 2])),
        allocation_ratio=draw(st.sampled_from([1, 1, "1.5"])),
        used=draw(st.sampled_from([0, 0, 1, 2, 9])),
    )


def kept(classes=CLASSES):
    return st.dictionaries(st.sampled_from(classes), inventories()).map(Inventories)


def traits():
    return st.lists(st.sampled_from(TRAITS), max_size=2, unique=True)


@st.composite
def trees(draw, host, pool=False):
    """A tree of up to five providers, with shares and aggregates in some."""
    own = [SHARING] * pool
    root = Provider(host, draw(kept()), traits=own + draw(st.just([]) | traits()))
    places = [root]
    for number in range(draw(st.integers(0, 4))):
        place = draw(st.sampled_from(places))
        name = draw(st.sampled_from([f"{host}/{number}", f"a{number}-{host}"]))
        place.add(name, draw(kept(["PGPU", "CUSTOM_X"]) | kept()), traits=draw(traits()))
        places.append(root.find(name))
    for place in list(root.walk()) if draw(st.booleans()) else ():
        place.update(shares=draw(shares(root, place)))
        diff(None, root)
    for place in places:
        place.update(aggregates=draw(st.just([]) | st.lists(st.sampled_from("rs"), max_size=2)))
    return root


@st.composite
def shares(draw, root, place):
    """Shares of one provider in what comes before it, stating what that uses in turn."""
    found = {}
    before = []
    for provider in root.walk():
        if provider is place:
            break
        before += [(provider, name) for name in map(str, provider.inventories)]
    for source in map(str, place.inventories):
        for of, of_class in draw(st.lists(st.sampled_from(before), max_size=2)) if before else ():
            found[source, of.name, of_class] = draw(st.sampled_from([1, 1, 1, 2]))
            for share in of.shares:
                if share.resource_class == of_class:
                    found[source, share.of, share.of_class] = draw(st.integers(1, 2))
    return [
        Share(resource_class=source, of=of, of_class=of_class, factor=factor)
        for (source, of, of_class), factor in found.items()
    ]


@st.composite
def fleets(draw):
    """Two hosts at most, and in every other fleet a pool or two."""
    roots = [draw(trees(f"host{n}")) for n in range(draw(st.integers(0, 2)))]
    pools = draw(st.just(0) | st.integers(1, 2))
    return columns_of([*roots, *(draw(trees(f"pool{n}", True)) for n in range(pools))])


@st.composite
def requests(draw):
    amounts = draw(st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 5), min_size=1))
    required = draw(traits())
    forbidden = draw(st.just([]) | traits())
    return Request(amounts, required=required, forbidden=set(forbidden) - set(required))


@pytest.mark.law(5)
@settings(max_examples=examples(100))
@given(fleets(), requests())
def test_the_same_hosts_are_found(columns, request):
    found = Snapshot(columns).candidates(request, limit=None)
    assert not found.cut_short
    assert [candidate.host for candidate in found] == naive_search.hosts_that_fit(columns, request)


@pytest.mark.law(5, 6)
@pytest.mark.parametrize("make", [generated.mixed, generated.crowded])
@pytest.mark.parametrize("start", some(range(0, 750, 125)))
def test_the_same_hosts_are_found_whatever_is_shared(make, start):
    for seed in range(start, start + 125):
        roots, request = make(seed)
        columns = columns_of(roots)
        found = Snapshot(columns).candidates(request, limit=None)
        fits = naive_search.hosts_that_fit(columns, request)
        assert [candidate.host for candidate in found] == fits, seed
        for candidate in found:
            assert naive_search.candidate_faults(columns, request, candidate) == [], seed
        check_told(columns, request, found)


@st.composite
def tagged_devices(draw):
    """A host whose devices differ by their traits alone, in two or three classes."""
    root = Provider("host0")
    number = st.integers(1, 4)
    for name in ["CUSTOM_X", "CUSTOM_Y", "CUSTOM_Z"][: draw(st.integers(2, 3))]:
        for place in range(draw(number)):
            tags = draw(st.sets(st.sampled_from("ABCDE"), max_size=3))
            root.add(f"{name}/{place}", f"{name}=1", traits=[f"CUSTOM_{tag}" for tag in tags])
    return root


@settings(max_examples=examples(300))
@given(tagged_devices(), st.sets(st.sampled_from("ABCDE"), min_size=2), st.integers(1, 2))
def test_every_way_to_answer_for_traits_is_considered(root, tags, amount):
    names = {child.name.partition("/")[0] for child in root.children}
    request = Request(dict.fromkeys(names, amount), required=[f"CUSTOM_{tag}" for tag in tags])
    columns = columns_of([root])
    found = Snapshot(columns).candidates(request)
    assert [candidate.host for candidate in found] == naive_search.hosts_that_fit(columns, request)
    assert all(
        not naive_search.candidate_faults(columns, request, candidate) for candidate in found
    )
    assert found or found.explain().reasons


@pytest.mark.law(6)
@settings(max_examples=examples(100))
@given(fleets(), requests())
def test_every_candidate_is_one_that_may_be_claimed(columns, request):
    for candidate in Snapshot(columns).candidates(request):
        assert naive_search.candidate_faults(columns, request, candidate) == []
        assert candidate.amounts == request.resources


@pytest.mark.law(6)
@settings(max_examples=examples(100))
@given(fleets(), requests())
def test_every_refused_host_has_a_reason(columns, request):
    check_told(columns, request, Snapshot(columns).candidates(request, limit=None))


def check_told(columns, request, found):
    """Every host is found or told of, with reasons whose figures say no."""
    snapshot, told = Snapshot(columns), dict(found.explain().by_host())
    hosts = {candidate.host for candidate in found}
    assert not hosts & told.keys()
    assert set(snapshot.hosts) <= hosts | told.keys() <= {*snapshot.hosts, *snapshot.pools}
    asked = {resource.name: int(amount) for resource, amount in request.resources.items()}
    for reasons in told.values():
        assert reasons
        for reason in reasons:
            assert reason.requested > reason.free or reason.rule is not Rule.CAPACITY
            if not columns.shares.factor:
                assert reason.requested == asked[reason.resource]
    assert str(found.explain()).count("\n") + 1 == max(len(told), 1)


@pytest.mark.law(9)
@settings(max_examples=examples(100))
@given(fleets(), requests(), st.integers(1, 12))
def test_a_small_budget_never_changes_a_yes_or_no_into_the_other(columns, request, budget):
    fits = naive_search.hosts_that_fit(columns, request)
    found = Snapshot(columns).candidates(request, limit=None, budget=budget)
    assert found.steps <= budget
    explanation = found.explain()
    refused = [host for host, _ in explanation.by_host()]
    assert not set(refused) & set(fits)
    if found.cut_short:
        assert explanation.undecided
    else:
        assert [candidate.host for candidate in found] == fits


@pytest.mark.law(9)
@settings(max_examples=examples(100))
@given(fleets(), requests())
def test_the_same_question_has_the_same_answer(columns, request):
    snapshot = Snapshot(columns)
    first, again = snapshot.candidates(request), Snapshot(columns).candidates(request)
    assert list(first) == list(again) == list(snapshot.candidates(request))
    assert first.steps == again.steps
    assert str(first.explain()) == str(again.explain())


@pytest.mark.law(9)
@given(fleets(), requests(), st.randoms(use_true_random=False))
def test_the_order_in_which_a_backend_returns_rows_does_not_matter(columns, request, random):
    tables = {
        name: shuffle(getattr(columns, name), random)
        for name in Columns.__dataclass_fields__
        if name not in ("cursor", "now")
    }
    first, again = (
        Snapshot(columns).candidates(request),
        Snapshot(Columns(**tables)).candidates(request),
    )
    assert list(first) == list(again)
    assert str(first.explain()) == str(again.explain())


def shuffle(table, random):
    rows = list(zip(*table, strict=True))
    random.shuffle(rows)
    return type(table)(*zip(*rows, strict=True)) if rows else table
