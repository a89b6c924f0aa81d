"""Limits of single users within a project."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_OPTIONS = {"engine": "InnoDB", "charset": "utf8mb4", "collate": "utf8mb4_nopad_bin"}
OPTIONS: dict[str, Any] = {
    f"{dialect}_{name}": value for dialect in ("mysql", "mariadb") for name, value in _OPTIONS.items()
}


def upgrade() -> None:
    op.create_table(
        "user_quota_limits",
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("resource", sa.String(length=64), nullable=False),
        sa.Column("hard_limit", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "user_id", "resource", name="pk_user_quota_limits"),
        **OPTIONS,
    )
