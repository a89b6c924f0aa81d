"""Indexes for lists of all projects' servers: by filters, and in the order of names."""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for column in ("flavorid", "user_id", "key_name", "availability_zone", "task_state"):
        op.create_index(f"ix_instances_{column}_deleted_created_at", "instances", [column, "deleted", "created_at"])
    op.create_index("ix_instances_deleted_display_name_id", "instances", ["deleted", "display_name", "id"])
