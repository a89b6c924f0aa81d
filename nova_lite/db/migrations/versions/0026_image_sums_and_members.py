"""MD5 and virtual size of images, and the projects that an image is shared with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME, create_table

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("images", sa.Column("md5", sa.String(length=32), server_default=sa.text("''"), nullable=False))
    op.add_column("images", sa.Column("virtual_size", sa.BigInteger(), nullable=True))
    create_table(
        "image_members",
        sa.Column("image_id", sa.String(length=36), nullable=False),
        sa.Column("member_id", sa.String(length=255), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=True),
        sa.ForeignKeyConstraint(["image_id"], ["images.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("image_id", "member_id"),
    )
    op.create_index("ix_image_members_member_id", "image_members", ["member_id"], unique=False)
