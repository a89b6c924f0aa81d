"""Subnet pools, address scopes, address groups, and policies that share resources with other projects."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME, create_table

revision = "0039"
down_revision = "0048"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "address_scopes",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("ip_version", sa.Integer(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_address_scopes"),
    )
    op.create_index("ix_address_scopes_project_id", "address_scopes", ["project_id"], unique=False)
    create_table(
        "subnet_pools",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("description", sa.String(length=255), nullable=False),
        sa.Column("prefixes", sa.JSON(), nullable=False),
        sa.Column("ip_version", sa.Integer(), nullable=False),
        sa.Column("min_prefixlen", sa.Integer(), nullable=False),
        sa.Column("max_prefixlen", sa.Integer(), nullable=False),
        sa.Column("default_prefixlen", sa.Integer(), nullable=False),
        sa.Column("default_quota", sa.Integer(), nullable=True),
        sa.Column("is_default", sa.Boolean(), nullable=False),
        sa.Column("address_scope_id", sa.String(length=36), nullable=True),
        sa.Column("tags", sa.JSON(), nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_subnet_pools"),
        sa.ForeignKeyConstraint(["address_scope_id"], ["address_scopes.id"], name="fk_subnet_pools_address_scope_id"),
    )
    op.create_index("ix_subnet_pools_project_id", "subnet_pools", ["project_id"], unique=False)
    op.create_index("ix_subnet_pools_address_scope_id", "subnet_pools", ["address_scope_id"], unique=False)
    create_table(
        "address_groups",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("description", sa.String(length=255), nullable=False),
        sa.Column("addresses", sa.JSON(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_address_groups"),
    )
    op.create_index("ix_address_groups_project_id", "address_groups", ["project_id"], unique=False)
    create_table(
        "rbac_policies",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("object_type", sa.String(length=32), nullable=False),
        sa.Column("object_id", sa.String(length=36), nullable=False),
        sa.Column("target", sa.String(length=255), nullable=False),
        sa.Column("action", sa.String(length=32), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_rbac_policies"),
        sa.UniqueConstraint(
            *("object_type", "object_id", "target", "action"),
            name="uq_rbac_policies_object_type_object_id_target_action",
        ),
    )
    op.create_index("ix_rbac_policies_project_id", "rbac_policies", ["project_id"], unique=False)
    op.create_index("ix_rbac_policies_target_object_type", "rbac_policies", ["target", "object_type"], unique=False)
    op.add_column("networks", sa.Column("subnet_pool_id", sa.String(length=36), nullable=True))
    op.create_index("ix_networks_subnet_pool_id", "networks", ["subnet_pool_id"], unique=False)
    op.add_column("security_group_rules", sa.Column("remote_address_group_id", sa.String(length=36), nullable=True))
    op.create_index(
        "ix_security_group_rules_remote_address_group_id",
        "security_group_rules",
        ["remote_address_group_id"],
        unique=False,
    )
