"""Access of projects to private flavors."""

from __future__ import annotations

import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core import rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Flavor
from nova_lite.db.core.models import FlavorAccess as Row
from nova_lite.db.servers import flavors


def list_(uow: UnitOfWork, context: RequestContext, flavor_id: str) -> list[str]:
    """Return the ids of the projects with access. Raises `FlavorAccessNotKept` for a public flavor."""
    flavor = flavors.get_row(uow, context, flavor_id)
    if flavor.is_public:
        raise exceptions.FlavorAccessNotKept()
    return _projects(uow, flavor)


def add(uow: UnitOfWork, context: RequestContext, flavor_id: str, project_id: str, even_public: bool) -> list[str]:
    """Add a project and return all projects with access. Raises `FlavorAccessExists`, and `FlavorIsPublic` unless
    ``even_public``.
    """
    flavor = flavors.get_row(uow, context, flavor_id, lock=True)
    if flavor.is_public and not even_public:
        raise exceptions.FlavorIsPublic()
    row = Row(flavor_id=flavor.id, project_id=project_id)
    rows.insert(uow, row, exceptions.FlavorAccessExists(flavor_id=flavor_id, project_id=project_id))
    return _projects(uow, flavor)


def remove(uow: UnitOfWork, context: RequestContext, flavor_id: str, project_id: str) -> list[str]:
    """Remove a project and return the remaining ones. Raises `FlavorAccessNotFound`. Existing servers keep their
    flavor.
    """
    flavor = flavors.get_row(uow, context, flavor_id, lock=True)
    if not uow.change(sa.delete(Row).where(Row.flavor_id == flavor.id, Row.project_id == project_id)):
        raise exceptions.FlavorAccessNotFound(flavor_id=flavor_id, project_id=project_id)
    return _projects(uow, flavor)


def _projects(uow: UnitOfWork, flavor: Flavor) -> list[str]:
    query = sa.select(Row.project_id).where(Row.flavor_id == flavor.id)
    return list(uow.session.scalars(query.order_by(Row.project_id)))
