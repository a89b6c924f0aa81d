"""Limits and quotas."""

from __future__ import annotations

from typing import Any, NamedTuple

from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Request
from nova_lite.objects import Limits, QuotaUsage

#: Absolute limit to the quota it shows, and the version from which it is not shown any more.
_MAXIMA: dict[str, tuple[str, int | None]] = {
    "maxServerMeta": ("metadata_items", None),
    "maxPersonality": ("injected_files", Change.NO_PERSONALITY),
    "maxPersonalitySize": ("injected_file_content_bytes", Change.NO_PERSONALITY),
    "maxImageMeta": ("metadata_items", Change.NO_IMAGE_METADATA),
    "maxTotalCores": ("cores", None),
    "maxTotalInstances": ("instances", None),
    "maxTotalRAMSize": ("ram", None),
    "maxTotalKeypairs": ("key_pairs", None),
    "maxServerGroups": ("server_groups", None),
    "maxServerGroupMembers": ("server_group_members", None),
    "maxSecurityGroups": ("security_groups", Change.NO_PROXIES),
    "maxSecurityGroupRules": ("security_group_rules", Change.NO_PROXIES),
    "maxTotalFloatingIps": ("floating_ips", Change.NO_PROXIES),
}
_TOTALS: dict[str, tuple[str, int | None]] = {
    "totalCoresUsed": ("cores", None),
    "totalInstancesUsed": ("instances", None),
    "totalRAMUsed": ("ram", None),
    "totalServerGroupsUsed": ("server_groups", None),
    "totalSecurityGroupsUsed": ("security_groups", Change.NO_PROXIES),
    "totalFloatingIpsUsed": ("floating_ips", Change.NO_PROXIES),
}


class Shown(NamedTuple):
    """Which resource a key of a quota set shows, the version from which it is gone there, and the versions in which a
    quota class set has it."""

    resource: str
    gone: int | None = None
    class_since: int = 1
    class_gone: int | None = None


_NETWORK = ("fixed_ips", "floating_ips", "security_groups", "security_group_rules")
_GROUPS = ("server_groups", "server_group_members")

QUOTAS: dict[str, Shown] = {
    **{name: Shown(name) for name in ("cores", "instances", "ram", "key_pairs", "metadata_items")},
    **{name: Shown(name, class_since=Change.QUOTA_CLASS_KEYS) for name in _GROUPS},
    **{
        name: Shown(resource, Change.NO_PERSONALITY, class_gone=Change.NO_PERSONALITY)
        for name, resource in (
            ("injected_files", "injected_files"),
            ("injected_file_content_bytes", "injected_file_content_bytes"),
            ("injected_file_path_bytes", "injected_file_path_length"),
        )
    },
    **{name: Shown(name, Change.NO_PROXIES, class_gone=Change.QUOTA_CLASS_KEYS) for name in _NETWORK},
}

#: A quota of the network service, which nobody has set here: no limit.
_UNLIMITED = QuotaUsage(limit=-1)


def absolute(req: Request, limits: Limits) -> dict[str, int]:
    return {
        **{name: _of(limits, quota).limit for name, (quota, gone) in _MAXIMA.items() if _has(req, 1, gone)},
        **{name: _of(limits, quota).used for name, (quota, gone) in _TOTALS.items() if _has(req, 1, gone)},
    }


def detail(req: Request, limits: Limits) -> dict[str, Any]:
    """A quota set with what is used, without its id."""
    return {
        name: {"limit": usage.limit, "in_use": usage.used, "reserved": usage.reserved}
        for name, quota in QUOTAS.items()
        if _has(req, 1, quota.gone)
        for usage in (_of(limits, quota.resource),)
    }


def limits_of(req: Request, limits: Limits) -> dict[str, int]:
    """A quota set without its id."""
    return {name: _of(limits, quota.resource).limit for name, quota in QUOTAS.items() if _has(req, 1, quota.gone)}


def class_limits(req: Request, limits: Limits) -> dict[str, int]:
    """A quota class set without its id."""
    return {
        name: _of(limits, quota.resource).limit
        for name, quota in QUOTAS.items()
        if _has(req, quota.class_since, quota.class_gone)
    }


def _has(req: Request, since: int, gone: int | None) -> bool:
    return req.version.minor >= since and (gone is None or req.version.minor < gone)


def _of(limits: Limits, quota: str) -> QuotaUsage:
    return limits.quotas.get(quota, _UNLIMITED)
