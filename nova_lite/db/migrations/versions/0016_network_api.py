"""Ports that users make and networks of projects' own: what the network API shows and changes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("ports") as table:
        table.alter_column("instance_uuid", existing_type=sa.String(length=36), nullable=True)
        table.add_column(sa.Column("project_id", sa.String(length=255), nullable=True))
        table.add_column(sa.Column("name", sa.String(length=255), nullable=False, server_default=sa.text("''")))
        table.add_column(sa.Column("description", sa.String(length=255), nullable=False, server_default=sa.text("''")))
        table.add_column(sa.Column("security_groups", sa.JSON(none_as_null=True), nullable=True))
        table.add_column(sa.Column("updated_at", TIME, nullable=True))
        table.create_index("ix_ports_project_id", ["project_id"], unique=False)
    with op.batch_alter_table("networks") as table:
        table.drop_constraint("uq_networks_name", type_="unique")
        table.add_column(sa.Column("description", sa.String(length=255), nullable=False, server_default=sa.text("''")))
        table.add_column(sa.Column("subnet_name", sa.String(length=255), nullable=False, server_default=sa.text("''")))
        table.add_column(
            sa.Column("subnet_description", sa.String(length=255), nullable=False, server_default=sa.text("''"))
        )
        table.add_column(sa.Column("updated_at", TIME, nullable=True))
    for name in ("security_group_rules", "floating_ips"):
        op.add_column(name, sa.Column("description", sa.String(length=255), nullable=True))
