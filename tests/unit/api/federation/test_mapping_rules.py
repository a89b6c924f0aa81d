"""Rules of mappings, in Keystone's language."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_lite.api.identity import mapping_rules
from nova_lite.api.identity.authority import DomainName
from nova_lite.api.identity.mapping_rules import Mapped, NothingMappedError
from nova_lite.base import exceptions

CLAIMS = {
    "sub": "s-1",
    "email": "a@b.org",
    "groups": ["makers", "admins; all", "readers"],
    "email_verified": True,
    "realm_access": {"roles": ["boss"]},
}


def rule(local: Any, *remote: dict[str, Any]) -> dict[str, Any]:
    return {"local": local if isinstance(local, list) else [local], "remote": [*remote]}


def evaluated(*rules: dict[str, Any], claims: dict[str, Any] = CLAIMS) -> Mapped:
    return mapping_rules.evaluate(mapping_rules.check([*rules]), mapping_rules.assertion_of(claims))


USER = rule({"user": {"id": "{0}", "name": "{1}"}}, {"type": "OIDC-sub"}, {"type": "HTTP_OIDC_EMAIL"})


def groups(**filters: Any) -> list[str]:
    given = rule({"groups": "{0}", "domain": {"name": "d"}}, {"type": "OIDC-groups", **filters})
    mapped = evaluated(USER, given)
    assert all(domain == DomainName(name="d") for _, domain in mapped.groups)
    return [name for name, _ in mapped.groups]


def test_mapping_with_references_gives_the_user_of_the_claims() -> None:
    assert evaluated(USER).user[:3] == ("a@b.org", "s-1", None)
    named = rule({"user": {"name": "x-{0}", "email": "{1}"}}, {"type": "OIDC-sub"}, {"type": "OIDC-email"})
    assert evaluated(named).user[:3] == ("x-s-1", None, "a@b.org")


def test_mapping_with_lists_of_groups_gives_the_filtered_values() -> None:
    assert groups() == CLAIMS["groups"]
    assert groups(whitelist=["makers", "others"]) == ["makers"]
    assert groups(blacklist=["makers"]) == ["admins; all", "readers"]
    assert groups(whitelist=["^r", "^m"], regex=True) == ["makers", "readers"]
    assert groups(whitelist=["nobody"]) == []
    assert groups(whitelist=["makers", "readers"], blacklist=["readers"]) == ["makers"]


def test_mapping_value_with_a_separator_stays_one_value() -> None:
    """A user who chooses a name cannot add a group by it."""
    mapped = evaluated(USER, rule({"groups": "{0}"}, {"type": "OIDC-name"}), claims={**CLAIMS, "name": "x;admins,y"})
    assert [name for name, _ in mapped.groups] == ["x;admins,y"]


def test_mapping_value_that_looks_like_a_reference_is_plain_text() -> None:
    claims = {**CLAIMS, "sub": "{1}{0.__class__}{9}"}
    assert evaluated(USER, claims=claims).user.id == "{1}{0.__class__}{9}"


@pytest.mark.parametrize(
    ("requirement", "fits"),
    [
        ({"type": "OIDC-groups", "any_one_of": ["makers", "x"]}, True),
        ({"type": "OIDC-groups", "any_one_of": ["maker"]}, False),
        ({"type": "OIDC-groups", "any_one_of": ["^maker"], "regex": True}, True),
        ({"type": "OIDC-groups", "not_any_of": ["makers"]}, False),
        ({"type": "OIDC-groups", "not_any_of": ["others"]}, True),
        ({"type": "OIDC-email_verified", "any_one_of": ["true"]}, True),
        ({"type": "OIDC-realm_access.roles", "any_one_of": ["boss"]}, True),
        ({"type": "OIDC-nothing"}, False),
        ({"type": "OIDC-nothing", "not_any_of": ["x"]}, False),
    ],
)
def test_mapping_rule_with_a_requirement_counts_if_it_fits(requirement: dict[str, Any], fits: bool) -> None:
    mapped = evaluated(USER, rule({"group": {"id": "g"}}, requirement))
    assert mapped.group_ids == (["g"] if fits else [])


def test_mapping_with_several_users_gives_the_first_that_fits() -> None:
    other = rule({"user": {"name": "boss"}}, {"type": "OIDC-sub", "any_one_of": ["s-2"]})
    assert evaluated(other, USER).user.id == "s-1"
    assert evaluated(other, USER, claims={**CLAIMS, "sub": "s-2"}).user.name == "boss"


def test_mapping_with_projects_gives_their_roles() -> None:
    projects = [{"name": "of-{0}", "roles": [{"name": "member"}]}]
    local = {"user": {"name": "{0}"}, "projects": projects}
    assert evaluated(rule(local, {"type": "OIDC-sub"})).projects == [("of-s-1", ["member"])]


@pytest.mark.parametrize(
    "rules",
    [
        [rule({"group": {"id": "g"}}, {"type": "OIDC-sub"})],
        [rule({"user": {"name": "{0}"}}, {"type": "OIDC-groups"})],
        [rule({"user": {"name": "{0}"}}, {"type": "OIDC-sub", "whitelist": ["other"]})],
        [rule({"user": {"name": "x"}}, {"type": "OIDC-sub", "any_one_of": ["other"]})],
    ],
)
def test_mapping_without_one_user_gives_nothing(rules: list[dict[str, Any]]) -> None:
    with pytest.raises(NothingMappedError):
        evaluated(*rules)


@given(
    st.dictionaries(
        st.text(max_size=9),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
            max_leaves=9,
        ),
        max_size=5,
    )
)
def test_claims_of_any_form_are_lists_of_texts(claims: dict[str, Any]) -> None:
    for values in mapping_rules.assertion_of(claims).values():
        assert all(isinstance(value, str) for value in values)


SUB = {"type": "OIDC-sub"}


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        (None, "rules must be a list of 1 to 100 rules"),
        ([], "rules must be a list"),
        ([USER] * 101, "rules must be a list"),
        ([1], "rules[0] must be an object"),
        ([{"local": [], "remote": [SUB]}], "rules[0] must have a list local"),
        ([{"local": [{"group": {"id": "g"}}]}], "rules[0] must have a list remote"),
        ([rule({"user": {"name": "x"}}, SUB) | {"more": 1}], "rules[0] has 'more'"),
        ([rule({"user": {"nam": "x"}}, SUB)], "rules[0].local[0].user has 'nam'"),
        ([rule({}, SUB)], "rules[0].local[0] must have a user"),
        ([rule({"user": {"name": 1}}, SUB)], "must have a string name"),
        ([rule({"user": {"name": "x", "type": "root"}}, SUB)], "must be ephemeral or local"),
        ([rule({"group": {}}, SUB)], "must have a string name"),
        ([rule({"groups": ["x"]}, SUB)], "must have a string groups"),
        ([rule({"user": {"name": "{1}"}}, SUB)], "has {1}, but remote has 1 entries with values"),
        ([rule({"user": {"name": "{0}"}}, {**SUB, "any_one_of": ["x"]})], "has {0}, but remote has 0 entries"),
        ([rule({"user": {"name": "x"}}, {})], "must have a string type"),
        ([rule({"user": {"name": "x"}}, {**SUB, "regex": 1})], "must be true or false"),
        ([rule({"user": {"name": "x"}}, {**SUB, "whitelist": "x"})], "must be a list of strings"),
        ([rule({"user": {"name": "x"}}, {**SUB, "any_one_of": ["("], "regex": True})], "not a regular expression"),
        ([rule({"user": {"name": "x"}}, {**SUB, "any_one_of": ["(a+)+$"], "regex": True})], "too complex"),
        ([rule({"user": {"name": "x"}}, {**SUB, "any_one_of": ["a*b*c"], "regex": True})], "too complex"),
        ([rule({"user": {"name": "x"}}, {**SUB, "any_one_of": ["a" * 256], "regex": True})], "255 characters"),
        ([rule({"user": {"name": "x"}}, {**SUB, "any_one_of": [], "not_any_of": []})], "only one of"),
        ([rule({"projects": [{"name": "x", "roles": []}]}, SUB)], "must have a list roles"),
        ([rule({"projects": [{"name": "x", "roles": [{"id": "1"}]}]}, SUB)], "roles[0] has 'id'"),
        ([rule({"projects": {}}, SUB)], "must be a list"),
        ([rule({"groups": "{0}", "domain": "x"}, SUB)], "domain must be an object"),
    ],
)
def test_mapping_with_a_mistake_is_refused_with_its_place(rules: Any, text: str) -> None:
    with pytest.raises(exceptions.ValidationError) as refused:
        mapping_rules.check(rules)
    assert text in refused.value.message
