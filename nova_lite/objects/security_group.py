"""The one security group that each project has: ``default``, which filters nothing."""

from __future__ import annotations

import uuid

DEFAULT = "default"

_NAMESPACE = uuid.UUID("6f1d6f2c-3c7e-5c1b-9a51-5d0f3b7c8e42")


def default_id(project_id: str | None) -> str:
    """The uuid of the project's group: no row holds it, and it is the same on every daemon."""
    return str(uuid.uuid5(_NAMESPACE, project_id or ""))


def is_default(name: str, project_id: str | None) -> bool:
    """Whether the group is meant, by its name or its id."""
    return name in (DEFAULT, default_id(project_id))
