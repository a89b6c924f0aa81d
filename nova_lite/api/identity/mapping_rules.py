"""Rules of a mapping, in Keystone's language: which user and groups the claims of an identity provider become.

A rule has requirements (``remote``) and what they give (``local``). Everything here is pure.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from nova_lite.api.identity.authority import DomainName
from nova_lite.base import exceptions, patterns

MAX_RULES = 100
#: Length of a claim's value, and number of its values, that are looked at. Others are left out.
MAX_VALUE, MAX_VALUES = 1024, 1000

_CONDITIONS = ("any_one_of", "not_any_of")
_FILTERS = ("whitelist", "blacklist")
_REFERENCE = re.compile(r"\{(\d{1,3})\}")

Values = list[str]
#: Values by the name that rules use.
Assertion = dict[str, Values]


class MappedUser(NamedTuple):
    """User of a mapping. ``id``: the name stands for an id that is missing. ``is_local``: one of our own users."""

    name: str | None = None
    id: str | None = None
    email: str | None = None
    is_local: bool = False
    domain: DomainName | None = None


class Mapped(NamedTuple):
    """Result of the rules. ``groups``: names with their domains. ``projects``: names with the names of roles."""

    user: MappedUser
    group_ids: list[str]
    groups: list[tuple[str, DomainName]]
    projects: list[tuple[str, list[str]]]


class NothingMappedError(Exception):
    """No rule fits the claims, or they give no user. The text is the reason, for the log."""


# --- claims


def assertion_of(claims: Mapping[str, Any]) -> Assertion:
    """Return the claims as ``OIDC-<claim>``, and as ``HTTP_OIDC_<CLAIM>``. Claims in a claim have a dot between."""
    found: Assertion = {}
    for name, values in _flat("", claims):
        found.setdefault(f"OIDC-{name}", values)
        found.setdefault("HTTP_OIDC_" + re.sub("[^A-Z0-9]", "_", name.upper()), values)
    return found


def _flat(prefix: str, claims: Mapping[str, Any]) -> Iterable[tuple[str, Values]]:
    for name, value in claims.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{name}.", value) if prefix.count(".") < 4 else ()
            continue
        items = value if isinstance(value, list) else [value]
        texts = (_text_of(item) for item in items[:MAX_VALUES] if isinstance(item, str | int | float))
        yield prefix + name, [text for text in texts if len(text) <= MAX_VALUE and _is_text(text)]


def _is_text(value: str) -> bool:
    """Check whether a value can be stored: JSON may also have NUL, and halves of characters (surrogates)."""
    return not re.search("[\0\ud800-\udfff]", value)


def _text_of(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- evaluation


def evaluate(rules: list[dict[str, Any]], assertion: Assertion) -> Mapped:
    """Return what the rules that fit give together. The first one with a user gives the user."""
    user: MappedUser | None = None
    mapped = Mapped(MappedUser(), [], [], [])
    for rule in rules:
        values = _requirements(rule["remote"], assertion)
        if values is None:
            continue
        for local in rule["local"]:
            domain = _domain(local.get("domain"))
            if "user" in local and user is None:
                user = _user(local["user"], values, domain)
            _add_groups(local, values, domain or DomainName(), mapped)
            for project in local.get("projects", []):
                names = [_one(role["name"], values) for role in project["roles"]]
                mapped.projects.append((_one(project["name"], values), names))
    if user is None or not (user.name or user.id):
        raise NothingMappedError("no rule of the mapping that fits its claims has a user")
    return mapped._replace(user=user)


def _requirements(remote: list[dict[str, Any]], assertion: Assertion) -> list[Values] | None:
    """Return the values that ``{0}`` and so on stand for, or None if a requirement is not met."""
    values: list[Values] = []
    for requirement in remote:
        given = assertion.get(requirement["type"])
        if not given:
            return None
        is_regex = requirement.get("regex", False)
        condition = next((name for name in _CONDITIONS if name in requirement), None)
        if condition is not None:
            is_any = any(_fits(value, requirement[condition], is_regex) for value in given)
            if is_any is not (condition == "any_one_of"):
                return None
            continue
        if "whitelist" in requirement:
            given = [value for value in given if _fits(value, requirement["whitelist"], is_regex)]
        if "blacklist" in requirement:
            given = [value for value in given if not _fits(value, requirement["blacklist"], is_regex)]
        values.append(given)
    return values


def _fits(value: str, wanted: list[str], is_regex: bool) -> bool:
    return any(_expression(pattern).search(value) for pattern in wanted) if is_regex else value in wanted


@functools.lru_cache(maxsize=1000)
def _expression(pattern: str) -> re.Pattern[str]:
    """Compile an expression. Raises `NothingMappedError` for an expensive one of an older version."""
    try:
        return re.compile(patterns.checked(pattern, is_for_long=True))
    except exceptions.InvalidInput as error:
        raise NothingMappedError(f"the mapping has to be changed: {error.message}") from error


def _user(given: dict[str, Any], values: list[Values], domain: DomainName | None) -> MappedUser:
    name, id, email = (_one(given[key], values) if key in given else None for key in ("name", "id", "email"))
    is_local = given.get("type") == "local"
    return MappedUser(name, id, email, is_local, _domain(given.get("domain")) or domain)


def _add_groups(local: dict[str, Any], values: list[Values], domain: DomainName, mapped: Mapped) -> None:
    if "group" in local:
        group = local["group"]
        if "id" in group:
            mapped.group_ids.append(_one(group["id"], values))
        else:
            mapped.groups.append((_one(group["name"], values), _domain(group.get("domain")) or domain))
    if "groups" in local:
        mapped.groups.extend((name, domain) for name in _all(local["groups"], values))
    if "group_ids" in local:
        mapped.group_ids.extend(_all(local["group_ids"], values))


def _one(text: str, values: list[Values]) -> str:
    """Return the text with values in place of its references, of which each stands for one value."""

    def value_of(reference: re.Match[str]) -> str:
        found = values[int(reference[1])]
        if len(found) != 1:
            raise NothingMappedError(f"{text!r} of the mapping needs one value, and {reference[0]} has {len(found)}")
        return found[0]

    return _REFERENCE.sub(value_of, text)


def _all(text: str, values: list[Values]) -> Values:
    """Return all values of a text that is one reference, or the text itself."""
    reference = _REFERENCE.fullmatch(text.strip())
    return values[int(reference[1])] if reference is not None else [_one(text, values)]


def _domain(given: dict[str, str] | None) -> DomainName | None:
    return None if given is None else DomainName(id=given.get("id"), name=given.get("name"))


# --- validation


def check(rules: Any) -> list[dict[str, Any]]:
    """Return the rules. Raises `ValidationError` with a sentence about the first mistake."""
    if not isinstance(rules, list) or not 1 <= len(rules) <= MAX_RULES:
        raise _mistake(f"rules must be a list of 1 to {MAX_RULES} rules")
    for number, rule in enumerate(rules):
        where = f"rules[{number}]"
        _object(where, rule, {"local", "remote"})
        for name in ("local", "remote"):
            items = rule.get(name)
            if not isinstance(items, list) or not items:
                raise _mistake(f"{where} must have a list {name} that is not empty")
        direct = sum(_check_remote(f"{where}.remote[{index}]", item) for index, item in enumerate(rule["remote"]))
        for index, item in enumerate(rule["local"]):
            _check_local(f"{where}.local[{index}]", item, direct)
    return rules


def _check_remote(where: str, item: Any) -> bool:
    """Check a requirement. Returns whether it has values for references."""
    _object(where, item, {"type", "regex", *_CONDITIONS, *_FILTERS})
    _text(where, item, "type")
    if not isinstance(item.get("regex", False), bool):
        raise _mistake(f"{where}.regex must be true or false")
    used = [name for name in (*_CONDITIONS, *_FILTERS) if name in item]
    if len(used) > 1 and used != list(_FILTERS):
        raise _mistake(f"{where} must have only one of {', '.join(used)}")
    for name in used:
        wanted = item[name]
        if not isinstance(wanted, list) or not all(isinstance(text, str) for text in wanted):
            raise _mistake(f"{where}.{name} must be a list of strings")
        for text in wanted if item.get("regex") else []:
            try:
                patterns.checked(text, is_for_long=True)
            except exceptions.InvalidInput as error:
                raise _mistake(f"{where}.{name}: {error.kwargs['reason']}") from error
    return not set(used) & set(_CONDITIONS)


def _check_local(where: str, item: Any, direct: int) -> None:
    _object(where, item, {"user", "group", "groups", "group_ids", "projects", "domain"})
    if not item:
        raise _mistake(f"{where} must have a user, group, groups, group_ids or projects")
    if "user" in item:
        user = item["user"]
        _object(f"{where}.user", user, {"id", "name", "email", "type", "domain"})
        for name in ("id", "name", "email", "type"):
            if name in user:
                _text(f"{where}.user", user, name)
        if user.get("type", "ephemeral") not in ("ephemeral", "local"):
            raise _mistake(f"{where}.user.type must be ephemeral or local")
    if "group" in item:
        _object(f"{where}.group", item["group"], {"id", "name", "domain"})
        _text(f"{where}.group", item["group"], "id" if "id" in item["group"] else "name")
    for name in ("groups", "group_ids"):
        if name in item:
            _text(where, item, name)
    _check_projects(f"{where}.projects", item.get("projects", []))
    for owner in (item, item.get("user", {}), item.get("group", {})):
        if "domain" in owner:
            _object(f"{where}.domain", owner["domain"], {"id", "name"})
            for name in ("id", "name"):
                if name in owner["domain"]:
                    _text(f"{where}.domain", owner["domain"], name)
    for reference in _references(item):
        if reference >= direct:
            raise _mistake(
                f"{where} has {{{reference}}}, but remote has {direct} entries with values; those with any_one_of or "
                "not_any_of do not count"
            )


def _check_projects(where: str, projects: Any) -> None:
    if not isinstance(projects, list):
        raise _mistake(f"{where} must be a list")
    for index, project in enumerate(projects):
        _object(f"{where}[{index}]", project, {"name", "roles"})
        _text(f"{where}[{index}]", project, "name")
        roles = project.get("roles")
        if not isinstance(roles, list) or not roles:
            raise _mistake(f"{where}[{index}] must have a list roles that is not empty")
        for number, role in enumerate(roles):
            _object(f"{where}[{index}].roles[{number}]", role, {"name"})
            _text(f"{where}[{index}].roles[{number}]", role, "name")


def _references(item: Any) -> Iterable[int]:
    if isinstance(item, str):
        yield from (int(number) for number in _REFERENCE.findall(item))
    elif isinstance(item, dict | list):
        for part in item.values() if isinstance(item, dict) else item:
            yield from _references(part)


def _object(where: str, item: Any, known: set[str]) -> None:
    if not isinstance(item, dict):
        raise _mistake(f"{where} must be an object")
    if unknown := sorted(set(item) - known):
        raise _mistake(f"{where} has {unknown[0][:64]!r}; there are {', '.join(sorted(known))}")


def _text(where: str, item: dict[str, Any], name: str) -> None:
    if not isinstance(item.get(name), str) or not item[name]:
        raise _mistake(f"{where} must have a string {name} that is not empty")


def _mistake(text: str) -> exceptions.ValidationError:
    return exceptions.ValidationError(detail=f"The mapping is wrong: {text}.")
