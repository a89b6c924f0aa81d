"""Access to private flavors, why a server is locked, and the kernel and ramdisk that it boots."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_OPTIONS = {"engine": "InnoDB", "charset": "utf8mb4", "collate": "utf8mb4_nopad_bin"}
OPTIONS: dict[str, Any] = {
    f"{dialect}_{name}": value for dialect in ("mysql", "mariadb") for name, value in _OPTIONS.items()
}


def upgrade() -> None:
    op.add_column("instances", sa.Column("boot_images", sa.JSON(), nullable=True))
    op.add_column("instances", sa.Column("locked_reason", sa.String(length=255), nullable=True))
    op.create_table(
        "flavor_access",
        sa.Column("flavor_id", BIG_ID, nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(["flavor_id"], ["flavors.id"], name="fk_flavor_access_flavor_id"),
        sa.PrimaryKeyConstraint("flavor_id", "project_id", name="pk_flavor_access"),
        **OPTIONS,
    )
    op.create_index("ix_flavor_access_project_id", "flavor_access", ["project_id"], unique=False)
