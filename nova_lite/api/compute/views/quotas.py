"""Limits and quotas."""

from __future__ import annotations

from typing import Any

from nova_lite.api.microversions import Change
from nova_lite.api.wsgi import Request
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
_QUOTAS: dict[str, tuple[str, int | None]] = {
    **{
        name: (name, None)
        for name in (
            *("cores", "instances", "ram", "key_pairs", "metadata_items", "server_groups", "server_group_members"),
        )
    },
    "injected_files": ("injected_files", Change.NO_PERSONALITY),
    "injected_file_content_bytes": ("injected_file_content_bytes", Change.NO_PERSONALITY),
    "injected_file_path_bytes": ("injected_file_path_length", Change.NO_PERSONALITY),
    **{name: (name, Change.NO_PROXIES) for name in ("fixed_ips", "floating_ips", "security_groups")},
    "security_group_rules": ("security_group_rules", Change.NO_PROXIES),
}

#: The network service's own quotas are not kept here: no limit.
_UNLIMITED = QuotaUsage(limit=-1)


def absolute(req: Request, limits: Limits) -> dict[str, int]:
    return {
        **{name: _of(limits, quota).limit for name, quota in _shown(req, _MAXIMA)},
        **{name: _of(limits, quota).used for name, quota in _shown(req, _TOTALS)},
    }


def quota_set(req: Request, limits: Limits, detail: bool) -> dict[str, Any]:
    view: dict[str, Any] = {"id": limits.project_id}
    for name, quota in _shown(req, _QUOTAS):
        usage = _of(limits, quota)
        counts = {"limit": usage.limit, "in_use": usage.used, "reserved": usage.reserved}
        view[name] = counts if detail else usage.limit
    return view


def _shown(req: Request, table: dict[str, tuple[str, int | None]]) -> list[tuple[str, str]]:
    return [(name, quota) for name, (quota, gone) in table.items() if gone is None or req.version.minor < gone]


def _of(limits: Limits, quota: str) -> QuotaUsage:
    return limits.quotas.get(quota, _UNLIMITED)
