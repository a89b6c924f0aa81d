"""Lists of a cloud's servers by state and by image, and of its volumes, read only the rows of a page."""

from __future__ import annotations

from alembic import op

revision = "0057"
down_revision = "0049"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for column in ("vm_state", "image_ref"):
        op.create_index(f"ix_instances_{column}_deleted_created_at", "instances", [column, "deleted", "created_at"])
    for table in ("volumes", "volume_snapshots", "volume_backups"):
        op.create_index(f"ix_{table}_created_at_id", table, ["created_at", "id"])
