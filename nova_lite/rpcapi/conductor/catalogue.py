"""Flavors, key pairs, quotas and usage."""

from __future__ import annotations

import datetime
from typing import Protocol

from nova_lite import rpc
from nova_lite.base.context import RequestContext
from nova_lite.objects import (
    Flavor,
    InstanceUsage,
    KeyPair,
    ProjectLimits,
)


class CatalogueRPC(Protocol):
    """Flavors, key pairs, quotas and usage."""

    @rpc.list_(rpc.API)
    def flavor_list(
        self,
        context: RequestContext,
        is_public: bool | None,
        min_ram: int | None,
        min_disk: int | None,
        limit: int | None,
        marker: str | None,
        sort_key: str,
        sort_dir: str,
        name: str | None = None,
    ) -> list[Flavor]:
        """Return flavors. ``is_public`` None: public and private ones. ``name``: a regular expression."""

    @rpc.read(rpc.API)
    def flavor_get(self, context: RequestContext, flavor_id: str) -> Flavor: ...

    @rpc.change(rpc.API)
    def flavor_create(self, context: RequestContext, flavor: Flavor) -> Flavor:
        """Create a flavor. An empty ``flavorid`` becomes a new uuid."""

    @rpc.change(rpc.API)
    def flavor_update(self, context: RequestContext, flavor_id: str, description: str | None) -> Flavor: ...

    @rpc.delete(rpc.API)
    def flavor_delete(self, context: RequestContext, flavor_id: str) -> None: ...

    @rpc.change(rpc.API)
    def flavor_extra_specs_update(
        self, context: RequestContext, flavor_id: str, extra_specs: dict[str, str]
    ) -> dict[str, str]:
        """Add or change these keys. Return all of them."""

    @rpc.delete(rpc.API)
    def flavor_extra_spec_delete(self, context: RequestContext, flavor_id: str, key: str) -> None: ...

    @rpc.list_(rpc.API)
    def flavor_access_list(self, context: RequestContext, flavor_id: str) -> list[str]:
        """Return the ids of the projects that may use a private flavor, as the next two methods do.

        Raises `FlavorAccessNotKept` for a public flavor.
        """

    @rpc.change(rpc.API)
    def flavor_access_add(
        self, context: RequestContext, flavor_id: str, project_id: str, even_public: bool
    ) -> list[str]:
        """Let a project use a flavor. Raises `FlavorAccessExists`, and `FlavorIsPublic` unless ``even_public``."""

    @rpc.change(rpc.API)
    def flavor_access_remove(self, context: RequestContext, flavor_id: str, project_id: str) -> list[str]: ...

    @rpc.list_(rpc.API)
    def keypair_list(
        self, context: RequestContext, user_id: str, limit: int | None, marker: str | None
    ) -> list[KeyPair]: ...

    @rpc.read(rpc.API)
    def keypair_get(self, context: RequestContext, user_id: str, name: str) -> KeyPair: ...

    @rpc.change(rpc.API)
    def keypair_create(self, context: RequestContext, keypair: KeyPair) -> KeyPair:
        """Store a public key. The API generates key pairs and fingerprints; the conductor never gets a private key."""

    @rpc.delete(rpc.API)
    def keypair_delete(self, context: RequestContext, user_id: str, name: str) -> None: ...

    @rpc.read(rpc.API)
    def limits_get(self, context: RequestContext, project_id: str, user_id: str | None = None) -> ProjectLimits:
        """Return the limits and the use of a project, or of one user in it."""

    @rpc.read(rpc.API)
    def quota_defaults_get(self, context: RequestContext) -> ProjectLimits:
        """Return the limits of a project without limits of its own, without any use."""

    @rpc.change(rpc.API)
    def quota_defaults_update(self, context: RequestContext, limits: dict[str, int]) -> ProjectLimits:
        """Set these defaults in place of ``[quota]``. Return all defaults."""

    @rpc.change(rpc.API)
    def quota_update(
        self,
        context: RequestContext,
        project_id: str,
        limits: dict[str, int],
        force: bool,
        user_id: str | None = None,
    ) -> ProjectLimits:
        """Set limits (-1: unlimited) of a project, or of one user in it. Return all limits.

        Unless ``force``, raises `QuotaBelowUse` for a limit below the use, and `QuotaAboveProject` for a user's limit
        above the project's.
        """

    @rpc.delete(rpc.API)
    def quota_delete(self, context: RequestContext, project_id: str, user_id: str | None = None) -> None:
        """Delete the limits of a project and its users, or (``user_id``) of this user."""

    @rpc.list_(rpc.API)
    def usage_list(
        self,
        context: RequestContext,
        project_id: str | None,
        start: datetime.datetime,
        end: datetime.datetime,
        limit: int | None,
        marker: str | None,
    ) -> list[InstanceUsage]:
        """Return the instances that ran in the period, by project and uuid. ``project_id`` None: all projects, for an
        admin.
        """
