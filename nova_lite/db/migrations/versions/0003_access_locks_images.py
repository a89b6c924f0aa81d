"""Access to private flavors, why a server is locked, and the kernel and ramdisk that it boots."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import BIG_ID, create_table

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("instances", sa.Column("boot_images", sa.JSON(), nullable=True))
    op.add_column("instances", sa.Column("locked_reason", sa.String(length=255), nullable=True))
    create_table(
        "flavor_access",
        sa.Column("flavor_id", BIG_ID, nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(["flavor_id"], ["flavors.id"], name="fk_flavor_access_flavor_id"),
        sa.PrimaryKeyConstraint("flavor_id", "project_id", name="pk_flavor_access"),
    )
    op.create_index("ix_flavor_access_project_id", "flavor_access", ["project_id"], unique=False)
