"""Indexes of lists and lookups of images, networks, ports, floating addresses and security groups."""

from __future__ import annotations

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

#: Indexes that the new ones replace.
_REPLACED = (("ports", "project_id"), ("floating_ips", "project_id"))

_NEW = (
    ("images", "owner", "created_at", "id"),
    ("images", "visibility", "created_at", "id"),
    ("images", "created_at", "id"),
    ("images", "status", "updated_at"),
    ("networks", "project_id", "id"),
    ("networks", "name"),
    ("networks", "cidr"),
    ("networks", "cidr6"),
    ("networks", "gateway"),
    ("ports", "project_id", "id"),
    ("ports", "address"),
    ("floating_ips", "project_id", "id"),
    ("security_groups", "project_id", "id"),
)


def upgrade() -> None:
    for table, *columns in _NEW:
        op.create_index(_name(table, *columns), table, columns)
    for table, *columns in _REPLACED:
        op.drop_index(_name(table, *columns), table)


def _name(table: str, *columns: str) -> str:
    return "_".join(("ix", table, *columns))
