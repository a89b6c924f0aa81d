"""Quotas and limits of one project."""

from __future__ import annotations

import msgspec


class QuotaUsage(msgspec.Struct, kw_only=True):
    """``limit`` -1 means unlimited."""

    limit: int
    used: int = 0
    reserved: int = 0


class ProjectLimits(msgspec.Struct, kw_only=True):
    """Resource name (instances, cores, ram, key_pairs, metadata_items, ...) to its limit and use."""

    project_id: str
    quotas: dict[str, QuotaUsage]
