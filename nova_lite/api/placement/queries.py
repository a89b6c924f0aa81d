"""Parameters of requests. Each function raises `ValidationError` (400) with the form that would be right."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from webob.multidict import MultiDict

from nova_lite.api.http import validation
from nova_lite.api.placement.matching import Needs
from nova_lite.api.placement.versions import Change
from nova_lite.base import exceptions

#: Resource classes of all clouds. The classes of PCI devices begin with CUSTOM_PCI_.
STANDARD_CLASSES = (
    "VCPU", "MEMORY_MB", "DISK_GB", "PCPU", "PCI_DEVICE", "SRIOV_NET_VF", "NUMA_SOCKET", "NUMA_CORE", "NUMA_THREAD",
    "NUMA_MEMORY_MB", "IPV4_ADDRESS", "VGPU", "VGPU_DISPLAY_HEAD", "NET_BW_EGR_KILOBIT_PER_SEC",
    "NET_BW_IGR_KILOBIT_PER_SEC", "MEM_ENCRYPTION_CONTEXT", "FPGA", "PGPU", "NET_PACKET_RATE_KILOPACKET_PER_SEC",
    "NET_PACKET_RATE_EGR_KILOPACKET_PER_SEC", "NET_PACKET_RATE_IGR_KILOPACKET_PER_SEC",
)  # fmt: skip

_NAME = re.compile(r"[A-Z0-9_]{1,255}")
_AMOUNT = re.compile(r"[0-9]{1,18}")
_LIMIT = re.compile(r"[1-9][0-9]{0,8}")
_GROUP = re.compile(r"(resources|required|member_of|in_tree)(.*)", re.DOTALL)
_NUMBERED, _NAMED = re.compile(r"(?:[1-9][0-9]*)?"), re.compile(r"[a-zA-Z0-9_-]{0,64}")
_FORM = "?resources=VCPU:2,MEMORY_MB:1024"


class CandidatesQuery(NamedTuple):
    """Query of allocation candidates. ``groups``: by their suffix. ``root``: what the whole candidate needs.
    ``separate``: the groups with a suffix must not share a provider.
    """

    groups: dict[str, Needs]
    root: Needs
    separate: bool
    limit: int | None


#: Parameters of queries, and the versions since which there are such.
PROVIDERS = {
    "name": 0,
    "uuid": 0,
    "member_of": Change.MEMBER_OF,
    "resources": Change.RESOURCES,
    "in_tree": Change.TREES,
    "required": Change.REQUIRED,
}
CANDIDATES = {
    "limit": Change.CANDIDATES_LIMIT,
    "group_policy": Change.GROUPS,
    "root_required": Change.ROOT_REQUIRED,
    "same_subtree": Change.SAME_SUBTREE,
    "resources": Change.CANDIDATES,
    "required": Change.CANDIDATES_TRAITS,
    "member_of": Change.CANDIDATES_MEMBER_OF,
    "in_tree": Change.CANDIDATES_IN_TREE,
}


def check_names(values: Mapping[str, str], known: Iterable[str]) -> None:
    """Refuse parameters that the version does not have."""
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise _invalid(f"Additional properties are not allowed ({unknown[0][:64]!r} was unexpected)")


def uuid(values: Mapping[str, str], name: str) -> str | None:
    text = values.get(name)
    if text is not None and not validation.is_uuid(text):
        raise _invalid(f"{text[:64]!r} is not a 'uuid': the value of {name}")
    return None if text is None else text.lower()


def of_providers(values: MultiDict, minor: int) -> Needs:
    """Return the needs of a list of providers."""
    check_names(values, (name for name, change in PROVIDERS.items() if minor >= change))
    return _needs(values, "", minor)


def of_candidates(values: MultiDict, minor: int) -> CandidatesQuery:
    """Return the query of allocation candidates."""
    suffixes = _suffixes(values, minor)
    groups = {suffix: _needs(values, suffix, minor) for suffix in suffixes}
    subtrees = [{part.strip() for part in value.split(",")} for value in values.getall("same_subtree")]
    _check_groups(groups, subtrees, minor)
    policy = values.get("group_policy")
    if policy not in (None, "none", "isolate"):
        raise _invalid(f"{policy[:64]!r} is not one of ['none', 'isolate']")
    separate = [suffix for suffix, needs in groups.items() if suffix]
    if policy is None and len(separate) > 1:
        raise exceptions.ValidationError(
            detail='The "group_policy" parameter is required when specifying more than one "resources{N}" parameter.'
        )
    limit = values.getall("limit")[:1]
    if limit and not _LIMIT.fullmatch(limit[0]):
        raise _invalid(f"{limit[0][:64]!r} does not match '^[1-9][0-9]*$': the value of limit")
    return CandidatesQuery(
        groups, _root(values), policy == "isolate" and len(separate) > 1, int(limit[0]) if limit else None
    )


def _suffixes(values: MultiDict, minor: int) -> list[str]:
    """Return the suffixes of the groups, in order. Refuses parameters that the version does not have."""
    known = {name for name, change in CANDIDATES.items() if minor >= change}
    pattern = _NAMED if minor >= Change.NAMED_GROUPS else _NUMBERED
    found: dict[str, None] = {}
    for name in values:
        match = None if name in ("limit", "group_policy", "root_required", "same_subtree") else _GROUP.fullmatch(name)
        if match is None:
            check_names({name: ""}, known)
            continue
        check_names({match[1] if minor >= Change.GROUPS else name: ""}, known)
        if not pattern.fullmatch(match[2]):
            check_names({name: ""}, ())
        found[match[2]] = None
    return list(found)


def _check_groups(groups: dict[str, Needs], subtrees: list[set[str]], minor: int) -> None:
    named = set().union(*subtrees)
    if "" in named:
        raise exceptions.ValidationError(
            detail="Empty string (unsuffixed group) can not be specified in `same_subtree`."
        )
    if unknown := sorted(named - groups.keys()):
        raise exceptions.ValidationError(
            detail=f"Real suffixes should be specified in `same_subtree`: {unknown[0][:64]!r} is not one."
        )
    if not any(needs.resources for needs in groups.values()):
        raise exceptions.ValidationError(
            detail="At least one request group (`resources` or `resources{$S}`) is required."
        )
    without = sorted(suffix for suffix, needs in groups.items() if not needs.resources and suffix not in named)
    if without:
        raise exceptions.ValidationError(
            detail=f"All request groups must specify resources: resources{without[0]} is missing."
        )


def _root(values: MultiDict) -> Needs:
    given = values.getall("root_required")
    if not given:
        return Needs()
    if len(given) > 1:
        raise exceptions.ValidationError(detail="Query parameter 'root_required' may be specified only once.")
    required, forbidden = _traits(given[0], allow_forbidden=True, allow_any=False)
    _check_conflicts("root_required", required, forbidden)
    return Needs(required=required, forbidden=frozenset(forbidden))


def _needs(values: MultiDict, suffix: str, minor: int) -> Needs:
    required: list[frozenset[str]] = []
    forbidden: set[str] = set()
    given = values.getall(f"required{suffix}")
    for value in given if minor >= Change.ANY_TRAITS else given[-1:]:
        some, others = _traits(value, minor >= Change.FORBIDDEN_TRAITS, minor >= Change.ANY_TRAITS)
        required += some
        forbidden |= others
    _check_conflicts(f"required{suffix}", required, forbidden)
    member_of, not_member_of = _aggregates(values.getall(f"member_of{suffix}"), suffix, minor)
    amounts = values.getall(f"resources{suffix}")
    return Needs(
        resources=resources(amounts[-1]) if amounts else {},
        required=required,
        forbidden=frozenset(forbidden),
        member_of=member_of,
        not_member_of=not_member_of,
        in_tree=uuid(values, f"in_tree{suffix}"),
    )


def resources(text: str) -> dict[str, int]:
    """Parse ``VCPU:2,MEMORY_MB:1024``."""
    found = {}
    for part in text.split(","):
        name, colon, amount = part.partition(":")
        if not colon or not part.strip():
            raise exceptions.ValidationError(
                detail="Badly formed resources parameter. Expected resources query string parameter in form: "
                f"{_FORM}. Got: {part[:64] or 'empty string'}."
            )
        if not _AMOUNT.fullmatch(amount):
            raise exceptions.ValidationError(
                detail=f"Requested resource {name[:64]} expected positive integer amount. Got: {amount[:64]}."
            )
        if int(amount) < 1:
            raise exceptions.ValidationError(
                detail=f"Requested resource {name[:64]} requires amount >= 1. Got: {amount}."
            )
        found[name] = int(amount)
    return found


def _traits(text: str, allow_forbidden: bool, allow_any: bool) -> tuple[list[frozenset[str]], set[str]]:
    """Parse ``A,!B`` (all of them) or ``in:A,B`` (any of them): required and forbidden traits."""
    if text.startswith("in:"):
        if not allow_any:
            raise _invalid("The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' is only supported since microversion 1.39")
        return [frozenset(_names(text[3:].split(","), "in:HW_CPU_X86_VMX,CUSTOM_MAGIC"))], set()
    form = "HW_CPU_X86_VMX,!CUSTOM_MAGIC" if allow_forbidden else "HW_CPU_X86_VMX,CUSTOM_MAGIC"
    parts = [part.strip() for part in text.split(",")]
    forbidden = [part.lstrip("!") for part in parts if part.startswith("!") and allow_forbidden]
    required = [part for part in parts if not (part.startswith("!") and allow_forbidden)]
    return [frozenset([name]) for name in _names(required, form)], set(_names(forbidden, form))


def _names(texts: Collection[str], form: str) -> list[str]:
    names = [text.strip() for text in texts]
    wrong = next((name for name in names if not _NAME.fullmatch(name)), None)
    if wrong is not None:
        raise _invalid(
            f"Expected 'required' parameter value of the form: {form}. Got: {wrong[:64] or 'an empty trait'}"
        )
    return names


def named(text: str | None) -> Callable[[str], bool]:
    """Return the test of names by ``in:A,B`` or ``startswith:A``. None: any name passes."""
    if text is None:
        return lambda name: True
    operator, colon, value = text.partition(":")
    if colon and operator == "in":
        return frozenset(value.split(",")).__contains__
    if colon and operator == "startswith":
        return lambda name: name.startswith(value)
    raise exceptions.ValidationError(
        detail="Badly formatted name parameter. Expected name query string parameter in form: "
        f'?name=[in|startswith]:[name1,name2|prefix]. Got: "{text[:64]}"'
    )


def check_classes(groups: Iterable[Needs], known: Collection[str]) -> None:
    """Refuse resource classes that do not exist."""
    for needs in groups:
        for name in needs.resources:
            if name not in known:
                raise exceptions.ValidationError(
                    detail=f"Invalid resource class in resources parameter: No such resource class {name[:64]}."
                )


def check_traits(groups: Iterable[Needs], known: Collection[str]) -> None:
    """Refuse custom traits that no provider has. There are more standard traits than a cloud's hosts have."""
    for needs in groups:
        for trait in sorted(needs.forbidden.union(*needs.required)):
            if trait.startswith("CUSTOM_") and trait not in known:
                raise exceptions.ValidationError(detail=f"No such trait(s): {trait}.")


def _check_conflicts(name: str, required: list[frozenset[str]], forbidden: set[str]) -> None:
    wrong = next((some for some in required if some <= forbidden), None)
    if wrong is not None:
        raise exceptions.ValidationError(
            detail="Conflicting required and forbidden traits found in the following traits keys: "
            f"{name}: ({', '.join(sorted(wrong))})"
        )


def _aggregates(texts: list[str], suffix: str, minor: int) -> tuple[list[frozenset[str]], frozenset[str]]:
    if len(texts) > 1 and minor < Change.SEVERAL_MEMBER_OF:
        raise exceptions.ValidationError(detail=f"Multiple member_of{suffix} parameters are not supported")
    required: list[frozenset[str]] = []
    forbidden: set[str] = set()
    for text in texts:
        is_forbidden = text.startswith("!")
        if is_forbidden and minor < Change.FORBIDDEN_AGGREGATES:
            raise exceptions.ValidationError(
                detail=f"Forbidden member_of{suffix} parameters are not supported in the specified microversion"
            )
        rest = text.removeprefix("!")
        if "," in rest and not rest.startswith("in:"):
            raise exceptions.ValidationError(
                detail="Multiple values for 'member_of' must be prefixed with the 'in:' or '!in:' keyword using the "
                f"valid microversion. Got: {text[:64]}"
            )
        uuids = frozenset(rest.removeprefix("in:").split(","))
        wrong = next((item for item in uuids if not validation.is_uuid(item)), None)
        if wrong is not None:
            raise _invalid(f"Expected 'member_of' parameter to contain valid UUID(s). Got: {wrong[:64]}")
        if is_forbidden:
            forbidden |= uuids
        else:
            required.append(uuids)
    return required, frozenset(forbidden)


def _invalid(reason: str) -> exceptions.ValidationError:
    return exceptions.ValidationError(detail=f"Invalid query string parameters: {reason}")
