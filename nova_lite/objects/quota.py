"""Quotas: limits and use of projects."""

from __future__ import annotations

import msgspec


class QuotaUsage(msgspec.Struct, kw_only=True):
    """Limit and use of one resource. A ``limit`` of -1 means unlimited."""

    limit: int
    used: int = 0
    reserved: int = 0


class ProjectLimits(msgspec.Struct, kw_only=True):
    """Limits and use of a project, by resource (instances, cores, ram, key_pairs, metadata_items, ...)."""

    project_id: str
    quotas: dict[str, QuotaUsage]
