"""The schema of version 1.0."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import BIG_ID, LONG_TEXT, TIME, create_table

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "address_groups",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("description", sa.String(length=255), nullable=False),
        sa.Column("addresses", sa.JSON(), nullable=False),
        sa.Column("updated_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_address_groups"),
    )
    op.create_index("ix_address_groups_project_id", "address_groups", ["project_id"])
    create_table(
        "address_scopes",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("ip_version", sa.Integer(), nullable=False),
        sa.Column("updated_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_address_scopes"),
    )
    op.create_index("ix_address_scopes_project_id", "address_scopes", ["project_id"])
    create_table(
        "aggregates",
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("updated_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_aggregates"),
        sa.UniqueConstraint("name", name="uq_aggregates_name"),
        sa.UniqueConstraint("uuid", name="uq_aggregates_uuid"),
        sqlite_autoincrement=True,
    )
    create_table(
        "audit_events",
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("event_time", TIME, nullable=False),
        sa.Column("service", sa.String(length=16), nullable=False),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("reason_code", sa.Integer(), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("credential", sa.String(length=255), nullable=False),
        sa.Column("address", sa.String(length=64), nullable=False),
        sa.Column("agent", sa.String(length=255), nullable=False),
        sa.Column("target_type", sa.String(length=255), nullable=False),
        sa.Column("target_id", sa.String(length=255), nullable=False),
        sa.Column("path", sa.String(length=512), nullable=False),
        sa.Column("observer", sa.String(length=255), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("id", BIG_ID, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_events"),
        sa.UniqueConstraint("uuid", name="uq_audit_events_uuid"),
    )
    op.create_index("ix_audit_events_action_event_time_id", "audit_events", ["action", "event_time", "id"])
    op.create_index("ix_audit_events_event_time_id", "audit_events", ["event_time", "id"])
    op.create_index("ix_audit_events_outcome_event_time_id", "audit_events", ["outcome", "event_time", "id"])
    op.create_index("ix_audit_events_project_id_event_time_id", "audit_events", ["project_id", "event_time", "id"])
    op.create_index("ix_audit_events_target_id_event_time_id", "audit_events", ["target_id", "event_time", "id"])
    op.create_index("ix_audit_events_user_id_event_time_id", "audit_events", ["user_id", "event_time", "id"])
    create_table(
        "backup_policies",
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("every", sa.String(length=8), nullable=False),
        sa.Column("minute", sa.Integer(), nullable=False),
        sa.Column("hour", sa.Integer(), nullable=False),
        sa.Column("weekday", sa.Integer(), nullable=False),
        sa.Column("keep_hourly", sa.Integer(), nullable=False),
        sa.Column("keep_daily", sa.Integer(), nullable=False),
        sa.Column("keep_weekly", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.Integer()),
        sa.Column("not_after", sa.Integer()),
        sa.Column("servers", sa.JSON(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("all_servers", sa.Boolean(), nullable=False),
        sa.Column("volumes", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("next_run_at", TIME),
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("updated_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_backup_policies"),
        sa.UniqueConstraint("uuid", name="uq_backup_policies_uuid"),
    )
    op.create_index("ix_backup_policies_next_run_at", "backup_policies", ["next_run_at"])
    op.create_index("ix_backup_policies_project_id", "backup_policies", ["project_id"])
    create_table(
        "backup_repositories",
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("is_made", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("removals", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("project_id", name="pk_backup_repositories"),
        sqlite_with_rowid=False,
    )
    create_table(
        "balance_moves",
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("source", sa.String(length=255), nullable=False),
        sa.Column("target", sa.String(length=255), nullable=False),
        sa.Column("action_id", sa.BigInteger(), nullable=False),
        sa.Column("begun_at", TIME, nullable=False),
        sa.Column("ended_at", TIME),
        sa.Column("result", sa.String(length=16)),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("id", BIG_ID, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_balance_moves"),
    )
    op.create_index("ix_balance_moves_begun_at", "balance_moves", ["begun_at"])
    op.create_index("ix_balance_moves_ended_at", "balance_moves", ["ended_at"])
    create_table(
        "balance_runs",
        sa.Column("id", BIG_ID, autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("begun_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_balance_runs"),
    )
    create_table(
        "cinder_attachments",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("volume_id", sa.String(length=36)),
        sa.Column("wanted", sa.Boolean(), nullable=False),
        sa.Column("to_be_made", sa.Boolean(), nullable=False),
        sa.Column("delete_volume", sa.Boolean(), nullable=False),
        sa.Column("attachments", sa.JSON(), nullable=False),
        sa.Column("error", sa.String(length=1024)),
        sa.Column("lease_owner", sa.String(length=36)),
        sa.Column("due_at", TIME),
        sa.Column("unsure_until", TIME),
        sa.Column("deadline", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_cinder_attachments"),
        sa.UniqueConstraint("volume_id", name="uq_cinder_attachments_volume_id"),
    )
    op.create_index("ix_cinder_attachments_due_at", "cinder_attachments", ["due_at"])
    op.create_index("ix_cinder_attachments_instance_uuid", "cinder_attachments", ["instance_uuid"])
    create_table(
        "console_auth_tokens",
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("compute_host", sa.String(length=255), nullable=False),
        sa.Column("console_type", sa.String(length=255), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("internal_access_path", sa.String(length=255)),
        sa.Column("access_url_base", sa.Text(), nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_console_auth_tokens"),
        sa.UniqueConstraint("token_hash", name="uq_console_auth_tokens_token_hash"),
    )
    op.create_index("ix_console_auth_tokens_expires_at", "console_auth_tokens", ["expires_at"])
    op.create_index("ix_console_auth_tokens_instance_uuid_id", "console_auth_tokens", ["instance_uuid", "id"])
    create_table(
        "crash_restarts",
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("action_id", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("started", sa.Boolean(), nullable=False),
        sa.Column("due_at", TIME),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("instance_uuid", name="pk_crash_restarts"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_crash_restarts_due_at", "crash_restarts", ["due_at"])
    create_table(
        "flavors",
        sa.Column("flavorid", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("root_gb", sa.Integer(), nullable=False),
        sa.Column("ephemeral_gb", sa.Integer(), nullable=False),
        sa.Column("swap", sa.Integer(), nullable=False),
        sa.Column("rxtx_factor", sa.Double(), nullable=False),
        sa.Column("is_public", sa.Boolean(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("description", sa.Text()),
        sa.Column("extra_specs", sa.JSON(), nullable=False),
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("updated_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_flavors"),
        sa.UniqueConstraint("flavorid", name="uq_flavors_flavorid"),
        sa.UniqueConstraint("name", name="uq_flavors_name"),
    )
    create_table(
        "floating_ip_pools",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("cidr", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=255)),
        sa.Column("description", sa.String(length=255)),
        sa.Column("subnet_name", sa.String(length=255)),
        sa.Column("gateway", sa.String(length=45)),
        sa.Column("ranges", sa.JSON(none_as_null=True)),
        sa.Column("subnet_id", sa.String(length=36)),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_floating_ip_pools"),
        sa.UniqueConstraint("name", name="uq_floating_ip_pools_name"),
    )
    create_table(
        "host_health",
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("problems", sa.JSON(), nullable=False),
        sa.Column("acted", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("cold", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("host", name="pk_host_health"),
        sqlite_with_rowid=False,
    )
    create_table(
        "host_leases",
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("boot_id", sa.String(length=36), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("guests", sa.JSON(), nullable=False),
        sa.Column("fenced", sa.String(length=16), nullable=False),
        sa.Column("fenced_at", TIME),
        sa.Column("fenced_by", sa.String(length=255)),
        sa.Column("checked_at", TIME),
        sa.Column("checks", sa.JSON(), nullable=False),
        sa.Column("suspended_until", TIME),
        sa.PrimaryKeyConstraint("host", name="pk_host_leases"),
        sqlite_with_rowid=False,
    )
    create_table(
        "host_loads",
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("reported_at", TIME, nullable=False),
        sa.Column("hot", sa.Boolean(), nullable=False),
        sa.Column("load", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("host", name="pk_host_loads"),
        sqlite_with_rowid=False,
    )
    create_table(
        "host_storage",
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("marks", sa.JSON(), nullable=False),
        sa.Column("seen", sa.JSON(), nullable=False),
        sa.Column("live", sa.JSON(), nullable=False),
        sa.Column("shares", sa.JSON(), nullable=False),
        sa.Column("updated_at", TIME),
        sa.PrimaryKeyConstraint("host", name="pk_host_storage"),
        sqlite_with_rowid=False,
    )
    create_table(
        "identity_records",
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.JSON(none_as_null=True)),
        sa.Column("id", BIG_ID, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_identity_records"),
        sa.UniqueConstraint("kind", "key", name="uq_identity_records_kind_key"),
    )
    op.create_index("ix_identity_records_version", "identity_records", ["version"])
    create_table(
        "identity_versions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("private_key", sa.String(length=64), server_default=sa.text("''"), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_identity_versions"),
    )
    create_table(
        "images",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("disk_format", sa.String(length=16), nullable=False),
        sa.Column("container_format", sa.String(length=16), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("checksum", sa.String(length=128), nullable=False),
        sa.Column("min_disk", sa.Integer(), nullable=False),
        sa.Column("min_ram", sa.Integer(), nullable=False),
        sa.Column("visibility", sa.String(length=16), nullable=False),
        sa.Column("owner", sa.String(length=255)),
        sa.Column("properties", sa.JSON(), nullable=False),
        sa.Column("tags", sa.JSON()),
        sa.Column("md5", sa.String(length=32), server_default=sa.text("''"), nullable=False),
        sa.Column("virtual_size", sa.BigInteger()),
        sa.Column("protected", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("hidden", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("updated_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_images"),
    )
    op.create_index("ix_images_created_at_id", "images", ["created_at", "id"])
    op.create_index("ix_images_name", "images", ["name"])
    op.create_index("ix_images_owner_created_at_id", "images", ["owner", "created_at", "id"])
    op.create_index("ix_images_status_updated_at", "images", ["status", "updated_at"])
    op.create_index("ix_images_visibility_created_at_id", "images", ["visibility", "created_at", "id"])
    create_table(
        "instance_actions",
        sa.Column("action", sa.String(length=32), nullable=False),
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("request_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255)),
        sa.Column("project_id", sa.String(length=255)),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("step", sa.String(length=32), nullable=False),
        sa.Column("host", sa.String(length=255)),
        sa.Column("lease_owner", sa.String(length=255)),
        sa.Column("lease_expires_at", TIME, nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("deadline", TIME, nullable=False),
        sa.Column("start_time", TIME, nullable=False),
        sa.Column("updated_at", TIME),
        sa.Column("finish_time", TIME),
        sa.Column("message", sa.String(length=255)),
        sa.Column("events", sa.JSON(none_as_null=True)),
        sa.Column("id", BIG_ID, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_instance_actions"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_instance_actions_finish_time_lease_expires_at", "instance_actions", ["finish_time", "lease_expires_at"]
    )
    op.create_index("ix_instance_actions_instance_uuid_id", "instance_actions", ["instance_uuid", "id"])
    op.create_index("ix_instance_actions_request_id", "instance_actions", ["request_id"])
    create_table(
        "instance_groups",
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("policy", sa.String(length=32), nullable=False),
        sa.Column("rules", sa.JSON(), nullable=False),
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_instance_groups"),
        sa.UniqueConstraint("uuid", name="uq_instance_groups_uuid"),
    )
    op.create_index("ix_instance_groups_project_id", "instance_groups", ["project_id"])
    create_table(
        "instances",
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("display_name", sa.String(length=255), nullable=False),
        sa.Column("display_description", sa.String(length=255)),
        sa.Column("hostname", sa.String(length=255), nullable=False),
        sa.Column("reservation_id", sa.String(length=255), nullable=False),
        sa.Column("launch_index", sa.Integer(), nullable=False),
        sa.Column("vm_state", sa.String(length=32), nullable=False),
        sa.Column("task_state", sa.String(length=32)),
        sa.Column("power_state", sa.Integer(), nullable=False),
        sa.Column("progress", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(length=255)),
        sa.Column("node", sa.String(length=255)),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("last_generation", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("availability_zone", sa.String(length=255)),
        sa.Column("requested_availability_zone", sa.String(length=255)),
        sa.Column("image_ref", sa.String(length=255), nullable=False),
        sa.Column("kernel_id", sa.String(length=255), nullable=False),
        sa.Column("ramdisk_id", sa.String(length=255), nullable=False),
        sa.Column("root_device_name", sa.String(length=64)),
        sa.Column("flavorid", sa.String(length=255), nullable=False),
        sa.Column("flavor", sa.JSON(), nullable=False),
        sa.Column("image", sa.JSON(none_as_null=True)),
        sa.Column("boot_images", sa.JSON()),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("disk_gb", sa.Integer(), nullable=False),
        sa.Column("extra_vcpus", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("extra_memory_mb", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("key_name", sa.String(length=255)),
        sa.Column("key_data", sa.Text()),
        sa.Column("user_data", LONG_TEXT),
        sa.Column("config_drive", sa.Boolean(), nullable=False),
        sa.Column("auto_disk_config", sa.Boolean(), nullable=False),
        sa.Column("locked", sa.Boolean(), nullable=False),
        sa.Column("locked_by", sa.String(length=16)),
        sa.Column("locked_reason", sa.String(length=255)),
        sa.Column("access_ip_v4", sa.String(length=45)),
        sa.Column("access_ip_v6", sa.String(length=45)),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("system_metadata", sa.JSON(), nullable=False),
        sa.Column("security_groups", sa.JSON(), nullable=False),
        sa.Column("scheduler_hints", sa.JSON(), nullable=False),
        sa.Column("fault", sa.JSON(none_as_null=True)),
        sa.Column("disks_at", sa.JSON(none_as_null=True)),
        sa.Column("shelved_image", sa.JSON(none_as_null=True)),
        sa.Column("block_devices", sa.JSON(none_as_null=True)),
        sa.Column("network_info", sa.JSON(none_as_null=True)),
        sa.Column("numa", sa.JSON(none_as_null=True)),
        sa.Column("guest_devices", sa.JSON(none_as_null=True)),
        sa.Column("site_role", sa.String(length=16)),
        sa.Column("shelved_at", TIME),
        sa.Column("network_call_until", TIME),
        sa.Column("launched_at", TIME),
        sa.Column("terminated_at", TIME),
        sa.Column("soft_deleted_at", TIME),
        sa.Column("deleted", sa.Boolean(), nullable=False),
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("updated_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_instances"),
        sa.UniqueConstraint("uuid", name="uq_instances_uuid"),
    )
    op.create_index("ix_instances_deleted_created_at", "instances", ["deleted", "created_at"])
    op.create_index("ix_instances_host_deleted", "instances", ["host", "deleted"])
    op.create_index("ix_instances_image_ref_deleted_created_at", "instances", ["image_ref", "deleted", "created_at"])
    op.create_index("ix_instances_project_id_deleted_created_at", "instances", ["project_id", "deleted", "created_at"])
    op.create_index(
        "ix_instances_project_id_terminated_at_launched_at", "instances", ["project_id", "terminated_at", "launched_at"]
    )
    op.create_index(
        "ix_instances_project_id_updated_at_created_at", "instances", ["project_id", "updated_at", "created_at"]
    )
    op.create_index("ix_instances_reservation_id", "instances", ["reservation_id"])
    op.create_index("ix_instances_shelved_at", "instances", ["shelved_at"])
    op.create_index("ix_instances_soft_deleted_at", "instances", ["soft_deleted_at"])
    op.create_index("ix_instances_terminated_at_launched_at", "instances", ["terminated_at", "launched_at"])
    op.create_index("ix_instances_updated_at_created_at", "instances", ["updated_at", "created_at"])
    op.create_index("ix_instances_vm_state_deleted_created_at", "instances", ["vm_state", "deleted", "created_at"])
    create_table(
        "join_tokens",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("public_key", sa.String(length=64), nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("used_at", TIME),
        sa.Column("revoked_at", TIME),
        sa.Column("host", sa.String(length=255)),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_join_tokens"),
    )
    create_table(
        "joined_hosts",
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("token_id", sa.String(length=16), nullable=False),
        sa.Column("public_key", sa.String(length=64), nullable=False),
        sa.Column("previous_key", sa.String(length=64)),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("body", LONG_TEXT, nullable=False),
        sa.Column("reply", LONG_TEXT, nullable=False),
        sa.Column("signature", sa.Text(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("updated_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("host", name="pk_joined_hosts"),
    )
    create_table(
        "key_pairs",
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("type", sa.String(length=16), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.String(length=255), nullable=False),
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_key_pairs"),
        sa.UniqueConstraint("user_id", "name", name="uq_key_pairs_user_id_name"),
        sqlite_autoincrement=True,
    )
    create_table(
        "member_versions",
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", name="pk_member_versions"),
    )
    create_table(
        "metadef_namespaces",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("namespace", sa.String(length=80), nullable=False),
        sa.Column("display_name", sa.String(length=80)),
        sa.Column("description", sa.String(length=500)),
        sa.Column("visibility", sa.String(length=16), nullable=False),
        sa.Column("protected", sa.Boolean(), nullable=False),
        sa.Column("owner", sa.String(length=255)),
        sa.Column("objects", sa.JSON(), nullable=False),
        sa.Column("properties", sa.JSON(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("resource_types", sa.JSON(), nullable=False),
        sa.Column("updated_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_metadef_namespaces"),
        sa.UniqueConstraint("namespace", name="uq_metadef_namespaces_namespace"),
    )
    create_table(
        "migrations",
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("migration_type", sa.String(length=32), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.String(length=255)),
        sa.Column("project_id", sa.String(length=255)),
        sa.Column("source", sa.JSON(), nullable=False),
        sa.Column("destination", sa.JSON(none_as_null=True)),
        sa.Column("source_host", sa.String(length=255), nullable=False),
        sa.Column("destination_host", sa.String(length=255)),
        sa.Column("destination_ip", sa.String(length=64)),
        sa.Column("old_flavor", sa.JSON(), nullable=False),
        sa.Column("new_flavor", sa.JSON(), nullable=False),
        sa.Column("vm_state", sa.String(length=32), nullable=False),
        sa.Column("progress", sa.JSON(none_as_null=True)),
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("updated_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_migrations"),
        sa.UniqueConstraint("uuid", name="uq_migrations_uuid"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_migrations_created_at", "migrations", ["created_at"])
    op.create_index("ix_migrations_destination_host", "migrations", ["destination_host"])
    op.create_index("ix_migrations_instance_uuid_id", "migrations", ["instance_uuid", "id"])
    op.create_index("ix_migrations_source_host", "migrations", ["source_host"])
    op.create_index("ix_migrations_status_updated_at", "migrations", ["status", "updated_at"])
    create_table(
        "networks",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("description", sa.String(length=255), server_default=sa.text("''"), nullable=False),
        sa.Column("subnet_name", sa.String(length=255), server_default=sa.text("''"), nullable=False),
        sa.Column("subnet_description", sa.String(length=255), server_default=sa.text("''"), nullable=False),
        sa.Column("cidr", sa.String(length=64), nullable=False),
        sa.Column("gateway", sa.String(length=45)),
        sa.Column("dns", sa.JSON(), nullable=False),
        sa.Column("bridge", sa.String(length=15), nullable=False),
        sa.Column("mtu", sa.Integer(), nullable=False),
        sa.Column("start", sa.String(length=45), nullable=False),
        sa.Column("end", sa.String(length=45), nullable=False),
        sa.Column("project_id", sa.String(length=255)),
        sa.Column("is_default", sa.Boolean(), nullable=False),
        sa.Column("vni", sa.Integer()),
        sa.Column("cidr6", sa.String(length=64), server_default=sa.text("''"), nullable=False),
        sa.Column("subnet6", sa.JSON()),
        sa.Column("subnet_id", sa.String(length=36)),
        sa.Column("subnet6_id", sa.String(length=36)),
        sa.Column("parent_id", sa.String(length=36)),
        sa.Column("is_segmented", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("needs_router", sa.Boolean()),
        sa.Column("subnet_tags", sa.JSON()),
        sa.Column("subnet_pool_id", sa.String(length=36)),
        sa.Column("subnet6_pool_id", sa.String(length=36)),
        sa.Column("admin_state_up", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.Column("port_security_enabled", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.Column("enable_dhcp", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.Column("pools", sa.JSON(none_as_null=True)),
        sa.Column("host_routes", sa.JSON(none_as_null=True)),
        sa.Column("host_address", sa.String(length=45)),
        sa.Column("revised", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("tags", sa.JSON()),
        sa.Column("updated_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_networks"),
    )
    op.create_index("ix_networks_cidr", "networks", ["cidr"])
    op.create_index("ix_networks_cidr6", "networks", ["cidr6"])
    op.create_index("ix_networks_gateway", "networks", ["gateway"])
    op.create_index("ix_networks_name", "networks", ["name"])
    op.create_index("ix_networks_parent_id", "networks", ["parent_id"])
    op.create_index("ix_networks_project_id_id", "networks", ["project_id", "id"])
    op.create_index("ix_networks_subnet6_id_cidr6", "networks", ["subnet6_id", "cidr6"])
    op.create_index("ix_networks_subnet6_pool_id", "networks", ["subnet6_pool_id"])
    op.create_index("ix_networks_subnet_id", "networks", ["subnet_id"])
    op.create_index("ix_networks_subnet_pool_id", "networks", ["subnet_pool_id"])
    op.create_index("ix_networks_vni", "networks", ["vni"], unique=True)
    create_table(
        "notifications",
        sa.Column("channel", sa.String(length=64), nullable=False),
        sa.Column("message_id", sa.String(length=36), nullable=False),
        sa.Column("event_type", sa.String(length=64), nullable=False),
        sa.Column("publisher_id", sa.String(length=300), nullable=False),
        sa.Column("priority", sa.String(length=8), nullable=False),
        sa.Column("context", sa.JSON(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("due_at", TIME, nullable=False),
        sa.Column("lease_owner", sa.String(length=36)),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_notifications"),
    )
    op.create_index("ix_notifications_channel_id", "notifications", ["channel", "id"])
    op.create_index("ix_notifications_created_at", "notifications", ["created_at"])
    create_table(
        "pending_attaches",
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("request_id", sa.String(length=255), nullable=False),
        sa.Column("port_id", sa.String(length=36)),
        sa.Column("until", TIME, nullable=False),
        sa.PrimaryKeyConstraint("instance_uuid", "request_id", name="pk_pending_attaches"),
    )
    op.create_index("ix_pending_attaches_until", "pending_attaches", ["until"])
    create_table(
        "published_trust",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("serial", sa.BigInteger(), nullable=False),
        sa.Column("content", LONG_TEXT, nullable=False),
        sa.Column("signature", sa.Text(), nullable=False),
        sa.Column("authority", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_published_trust"),
    )
    create_table(
        "purged_instances",
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("purged_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("uuid", name="pk_purged_instances"),
        sqlite_with_rowid=False,
    )
    create_table(
        "quota_limits",
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("resource", sa.String(length=64), nullable=False),
        sa.Column("hard_limit", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "resource", name="pk_quota_limits"),
    )
    create_table(
        "quota_usages",
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("resource", sa.String(length=64), nullable=False),
        sa.Column("used", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "resource", name="pk_quota_usages"),
    )
    create_table(
        "rbac_policies",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("object_type", sa.String(length=32), nullable=False),
        sa.Column("object_id", sa.String(length=36), nullable=False),
        sa.Column("target", sa.String(length=255), nullable=False),
        sa.Column("action", sa.String(length=32), nullable=False),
        sa.Column("updated_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_rbac_policies"),
        sa.UniqueConstraint(
            "object_type", "object_id", "target", "action", name="uq_rbac_policies_object_type_object_id_target_action"
        ),
    )
    op.create_index("ix_rbac_policies_project_id", "rbac_policies", ["project_id"])
    op.create_index("ix_rbac_policies_target_object_type", "rbac_policies", ["target", "object_type"])
    create_table(
        "replicated_servers",
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("server_id", sa.String(length=36), nullable=False),
        sa.Column("policy_id", sa.String(length=36), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("backups", sa.JSON(), nullable=False),
        sa.Column("image_id", sa.String(length=36)),
        sa.Column("action_id", sa.BigInteger()),
        sa.Column("backup_id", sa.String(length=36)),
        sa.Column("published", sa.String(length=36)),
        sa.Column("since", TIME),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("reason", sa.Text()),
        sa.PrimaryKeyConstraint("instance_uuid", name="pk_replicated_servers"),
        sa.UniqueConstraint("server_id", name="uq_replicated_servers_server_id"),
        sqlite_with_rowid=False,
    )
    create_table(
        "restarts",
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", TIME, nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("instance_uuid", name="pk_restarts"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_restarts_due_at", "restarts", ["due_at"])
    create_table(
        "security_groups",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("description", sa.String(length=255)),
        sa.Column("tags", sa.JSON()),
        sa.Column("updated_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_security_groups"),
        sa.UniqueConstraint("project_id", "name", name="uq_security_groups_project_id_name"),
    )
    op.create_index("ix_security_groups_project_id_id", "security_groups", ["project_id", "id"])
    create_table(
        "server_backups",
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("policy_id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("scheduled_for", TIME, nullable=False),
        sa.Column("due_at", TIME, nullable=False),
        sa.Column("deadline", TIME, nullable=False),
        sa.Column("image_id", sa.String(length=36), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("action_id", sa.BigInteger()),
        sa.Column("host", sa.String(length=255)),
        sa.Column("started_at", TIME),
        sa.Column("finished_at", TIME),
        sa.Column("held_until", TIME),
        sa.Column("server", sa.JSON(), nullable=False),
        sa.Column("engine", sa.String(length=16), server_default="images", nullable=False),
        sa.Column("generation", sa.Integer()),
        sa.Column("base_id", sa.String(length=36)),
        sa.Column("increments", sa.Integer(), server_default="0", nullable=False),
        sa.Column("disk_size", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("snapshot", sa.String(length=64)),
        sa.Column("digest", sa.String(length=64)),
        sa.Column("has_image", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("restored_image_id", sa.String(length=36)),
        sa.Column("restore_status", sa.String(length=16)),
        sa.Column("restore_reason", sa.Text()),
        sa.Column("disks", sa.JSON(none_as_null=True)),
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_server_backups"),
        sa.UniqueConstraint(
            "policy_id",
            "instance_uuid",
            "scheduled_for",
            name="uq_server_backups_policy_id_instance_uuid_scheduled_for",
        ),
        sa.UniqueConstraint("uuid", name="uq_server_backups_uuid"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_server_backups_base_id", "server_backups", ["base_id"])
    op.create_index("ix_server_backups_project_id_id", "server_backups", ["project_id", "id"])
    op.create_index("ix_server_backups_status_due_at", "server_backups", ["status", "due_at"])
    create_table(
        "services",
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("binary", sa.String(length=64), nullable=False),
        sa.Column("topic", sa.String(length=64), nullable=False),
        sa.Column("version", sa.String(length=32), nullable=False),
        sa.Column("version_since", TIME),
        sa.Column("up", sa.Boolean(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("disabled_reason", sa.String(length=255)),
        sa.Column("forced_down", sa.Boolean(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("identity", sa.String(length=64)),
        sa.Column("identity_epoch", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("availability_zone", sa.String(length=255), nullable=False),
        sa.Column("boot_id", sa.String(length=36), nullable=False),
        sa.Column("report_count", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_seen_up", TIME),
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("updated_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_services"),
        sa.UniqueConstraint("host", "binary", name="uq_services_host_binary"),
        sa.UniqueConstraint("uuid", name="uq_services_uuid"),
        sqlite_autoincrement=True,
    )
    create_table(
        "taken_messages",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("taken_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_taken_messages"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_taken_messages_taken_at", "taken_messages", ["taken_at"])
    create_table(
        "unknown_domains",
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("uuids", sa.JSON(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("without_disks", sa.JSON(none_as_null=True)),
        sa.Column("newer", sa.JSON(none_as_null=True)),
        sa.PrimaryKeyConstraint("host", name="pk_unknown_domains"),
        sqlite_with_rowid=False,
    )
    create_table(
        "usage_audits",
        sa.Column("beginning", TIME, nullable=False),
        sa.Column("ending", TIME, nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("servers", sa.Integer(), nullable=False),
        sa.Column("finished_at", TIME),
        sa.Column("id", BIG_ID, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_usage_audits"),
        sa.UniqueConstraint("beginning", "ending", name="uq_usage_audits_beginning_ending"),
    )
    create_table(
        "user_quota_limits",
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("resource", sa.String(length=64), nullable=False),
        sa.Column("hard_limit", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "user_id", "resource", name="pk_user_quota_limits"),
    )
    create_table(
        "volume_backups",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("data_id", sa.String(length=36), nullable=False),
        sa.Column("volume_id", sa.String(length=36), nullable=False),
        sa.Column("snapshot_id", sa.String(length=36)),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("description", sa.String(length=255)),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("fail_reason", sa.Text()),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("volume", sa.JSON(), nullable=False),
        sa.Column("data_timestamp", TIME),
        sa.Column("encryption_key_id", sa.String(length=36)),
        sa.Column("updated_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_volume_backups"),
    )
    op.create_index("ix_volume_backups_created_at_id", "volume_backups", ["created_at", "id"])
    op.create_index("ix_volume_backups_data_id", "volume_backups", ["data_id"])
    op.create_index("ix_volume_backups_project_id_created_at", "volume_backups", ["project_id", "created_at"])
    create_table(
        "volume_default_types",
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("type_id", sa.String(length=36), nullable=False),
        sa.PrimaryKeyConstraint("project_id", name="pk_volume_default_types"),
    )
    create_table(
        "volume_keys",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("master_key", sa.String(length=32), nullable=False),
        sa.Column("wrapped", sa.String(length=255), nullable=False),
        sa.Column("provider", sa.String(length=255), nullable=False),
        sa.Column("cipher", sa.String(length=255), nullable=False),
        sa.Column("key_size", sa.Integer(), nullable=False),
        sa.Column("control_location", sa.String(length=32), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_volume_keys"),
    )
    create_table(
        "volume_qos_specs",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("consumer", sa.String(length=16), nullable=False),
        sa.Column("specs", sa.JSON(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_volume_qos_specs"),
        sa.UniqueConstraint("name", name="uq_volume_qos_specs_name"),
    )
    create_table(
        "volume_quota_limits",
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("resource", sa.String(length=64), nullable=False),
        sa.Column("hard_limit", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "resource", name="pk_volume_quota_limits"),
    )
    create_table(
        "volume_snapshots",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("volume_id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("description", sa.String(length=255)),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("image", sa.JSON(none_as_null=True)),
        sa.Column("instance_uuid", sa.String(length=36)),
        sa.Column("progress", sa.String(length=8)),
        sa.Column("updated_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_volume_snapshots"),
    )
    op.create_index("ix_volume_snapshots_created_at_id", "volume_snapshots", ["created_at", "id"])
    op.create_index("ix_volume_snapshots_instance_uuid", "volume_snapshots", ["instance_uuid"])
    op.create_index("ix_volume_snapshots_project_id_created_at", "volume_snapshots", ["project_id", "created_at"])
    op.create_index("ix_volume_snapshots_volume_id", "volume_snapshots", ["volume_id"])
    create_table(
        "volume_tasks",
        sa.Column("verb", sa.String(length=32), nullable=False),
        sa.Column("volume_id", sa.String(length=36), nullable=False),
        sa.Column("reads", sa.String(length=36)),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("host", sa.String(length=255)),
        sa.Column("request_id", sa.String(length=255), nullable=False),
        sa.Column("lease_expires_at", TIME, nullable=False),
        sa.Column("deadline", TIME, nullable=False),
        sa.Column("id", BIG_ID, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_volume_tasks"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_volume_tasks_lease_expires_at", "volume_tasks", ["lease_expires_at"])
    op.create_index("ix_volume_tasks_reads", "volume_tasks", ["reads"])
    op.create_index("ix_volume_tasks_volume_id", "volume_tasks", ["volume_id"])
    create_table(
        "volume_types",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("description", sa.String(length=255)),
        sa.Column("is_public", sa.Boolean(), nullable=False),
        sa.Column("extra_specs", sa.JSON(), nullable=False),
        sa.Column("projects", sa.JSON(), nullable=False),
        sa.Column("qos_specs_id", sa.String(length=36)),
        sa.Column("encryption", sa.JSON(none_as_null=True)),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_volume_types"),
        sa.UniqueConstraint("name", name="uq_volume_types_name"),
    )
    create_table(
        "volumes",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("description", sa.String(length=255)),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("availability_zone", sa.String(length=255), nullable=False),
        sa.Column("volume_type", sa.String(length=255), nullable=False),
        sa.Column("bootable", sa.Boolean(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("image", sa.JSON(none_as_null=True)),
        sa.Column("snapshot_id", sa.String(length=36)),
        sa.Column("source_volid", sa.String(length=36)),
        sa.Column("instance_uuid", sa.String(length=36)),
        sa.Column("attachment_id", sa.String(length=36)),
        sa.Column("device", sa.String(length=64)),
        sa.Column("attached_at", TIME),
        sa.Column("image_metadata", sa.JSON(none_as_null=True)),
        sa.Column("attachment", sa.JSON(none_as_null=True)),
        sa.Column("encryption_key_id", sa.String(length=36)),
        sa.Column("updated_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_volumes"),
    )
    op.create_index("ix_volumes_created_at_id", "volumes", ["created_at", "id"])
    op.create_index("ix_volumes_instance_uuid", "volumes", ["instance_uuid"])
    op.create_index("ix_volumes_project_id_created_at", "volumes", ["project_id", "created_at"])
    create_table(
        "aggregate_hosts",
        sa.Column("aggregate_id", BIG_ID, nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(["aggregate_id"], ["aggregates.id"], name="fk_aggregate_hosts_aggregate_id"),
        sa.PrimaryKeyConstraint("aggregate_id", "host", name="pk_aggregate_hosts"),
    )
    op.create_index("ix_aggregate_hosts_host", "aggregate_hosts", ["host"])
    create_table(
        "compute_nodes",
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("service_id", BIG_ID, nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("inventory", sa.JSON(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("disk_gb", sa.Integer(), nullable=False),
        sa.Column("vcpus_used", sa.Integer(), nullable=False),
        sa.Column("memory_mb_used", sa.Integer(), nullable=False),
        sa.Column("disk_gb_used", sa.Integer(), nullable=False),
        sa.Column("cpu_allocation_ratio", sa.Double(), nullable=False),
        sa.Column("ram_allocation_ratio", sa.Double(), nullable=False),
        sa.Column("disk_allocation_ratio", sa.Double(), nullable=False),
        sa.Column("reserved", sa.JSON(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("failed_builds", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("freed_at", TIME),
        sa.Column("numa_used", sa.JSON(none_as_null=True)),
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("updated_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["service_id"], ["services.id"], name="fk_compute_nodes_service_id"),
        sa.PrimaryKeyConstraint("id", name="pk_compute_nodes"),
        sa.UniqueConstraint("host", "node", name="uq_compute_nodes_host_node"),
        sa.UniqueConstraint("uuid", name="uq_compute_nodes_uuid"),
        sqlite_autoincrement=True,
    )
    create_table(
        "flavor_access",
        sa.Column("flavor_id", BIG_ID, nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(["flavor_id"], ["flavors.id"], name="fk_flavor_access_flavor_id"),
        sa.PrimaryKeyConstraint("flavor_id", "project_id", name="pk_flavor_access"),
    )
    op.create_index("ix_flavor_access_project_id", "flavor_access", ["project_id"])
    create_table(
        "image_members",
        sa.Column("image_id", sa.String(length=36), nullable=False),
        sa.Column("member_id", sa.String(length=255), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("updated_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["image_id"], ["images.id"], name="fk_image_members_image_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("image_id", "member_id", name="pk_image_members"),
    )
    op.create_index("ix_image_members_member_id", "image_members", ["member_id"])
    create_table(
        "instance_action_events",
        sa.Column("action_id", BIG_ID, nullable=False),
        sa.Column("event", sa.String(length=255), nullable=False),
        sa.Column("start_time", TIME, nullable=False),
        sa.Column("finish_time", TIME),
        sa.Column("result", sa.String(length=16)),
        sa.Column("traceback", LONG_TEXT),
        sa.Column("host", sa.String(length=255)),
        sa.Column("details", sa.Text()),
        sa.Column("id", BIG_ID, nullable=False),
        sa.ForeignKeyConstraint(["action_id"], ["instance_actions.id"], name="fk_instance_action_events_action_id"),
        sa.PrimaryKeyConstraint("id", name="pk_instance_action_events"),
    )
    op.create_index("ix_instance_action_events_action_id", "instance_action_events", ["action_id"])
    create_table(
        "instance_group_members",
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("group_id", BIG_ID, nullable=False),
        sa.ForeignKeyConstraint(["group_id"], ["instance_groups.id"], name="fk_instance_group_members_group_id"),
        sa.PrimaryKeyConstraint("instance_uuid", name="pk_instance_group_members"),
    )
    op.create_index("ix_instance_group_members_group_id", "instance_group_members", ["group_id"])
    create_table(
        "instance_tags",
        sa.Column("instance_id", BIG_ID, nullable=False),
        sa.Column("tag", sa.String(length=60), nullable=False),
        sa.ForeignKeyConstraint(["instance_id"], ["instances.id"], name="fk_instance_tags_instance_id"),
        sa.PrimaryKeyConstraint("instance_id", "tag", name="pk_instance_tags"),
    )
    create_table(
        "ports",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("network_id", sa.String(length=36), nullable=False),
        sa.Column("instance_uuid", sa.String(length=36)),
        sa.Column("project_id", sa.String(length=255)),
        sa.Column("name", sa.String(length=255), server_default=sa.text("''"), nullable=False),
        sa.Column("description", sa.String(length=255), server_default=sa.text("''"), nullable=False),
        sa.Column("security_groups", sa.JSON(none_as_null=True)),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("mac_address", sa.String(length=17), nullable=False),
        sa.Column("address", sa.String(length=45)),
        sa.Column("address6", sa.String(length=45)),
        sa.Column("tag", sa.String(length=60)),
        sa.Column("state", sa.String(length=16)),
        sa.Column("admin_state_up", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.Column("port_security_enabled", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.Column("address_pairs", sa.JSON(none_as_null=True)),
        sa.Column("device_id", sa.String(length=255), server_default=sa.text("''"), nullable=False),
        sa.Column("device_owner", sa.String(length=255), server_default=sa.text("''"), nullable=False),
        sa.Column("tags", sa.JSON()),
        sa.Column("updated_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["instance_uuid"], ["instances.uuid"], name="fk_ports_instance_uuid"),
        sa.ForeignKeyConstraint(["network_id"], ["networks.id"], name="fk_ports_network_id"),
        sa.PrimaryKeyConstraint("id", name="pk_ports"),
        sa.UniqueConstraint("mac_address", name="uq_ports_mac_address"),
        sa.UniqueConstraint("network_id", "address", name="uq_ports_network_id_address"),
    )
    op.create_index("ix_ports_address", "ports", ["address"])
    op.create_index("ix_ports_device_id", "ports", ["device_id"])
    op.create_index("ix_ports_instance_uuid", "ports", ["instance_uuid"])
    op.create_index("ix_ports_network_id_address6", "ports", ["network_id", "address6"], unique=True)
    op.create_index("ix_ports_project_id_id", "ports", ["project_id", "id"])
    create_table(
        "routers",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("description", sa.String(length=255), nullable=False),
        sa.Column("pool_id", sa.String(length=36)),
        sa.Column("enable_snat", sa.Boolean(), nullable=False),
        sa.Column("routes", sa.JSON(), nullable=False),
        sa.Column("routes6", sa.JSON(none_as_null=True)),
        sa.Column("admin_state_up", sa.Boolean(), server_default=sa.true(), nullable=False),
        sa.Column("tags", sa.JSON()),
        sa.Column("updated_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["floating_ip_pools.id"], name="fk_routers_pool_id"),
        sa.PrimaryKeyConstraint("id", name="pk_routers"),
    )
    op.create_index("ix_routers_pool_id", "routers", ["pool_id"])
    op.create_index("ix_routers_project_id", "routers", ["project_id"])
    create_table(
        "security_group_rules",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("security_group_id", sa.String(length=36), nullable=False),
        sa.Column("direction", sa.String(length=16), nullable=False),
        sa.Column("ethertype", sa.String(length=16), nullable=False),
        sa.Column("protocol", sa.String(length=16)),
        sa.Column("port_range_min", sa.Integer()),
        sa.Column("port_range_max", sa.Integer()),
        sa.Column("remote_ip_prefix", sa.String(length=64)),
        sa.Column("remote_group_id", sa.String(length=36)),
        sa.Column("remote_address_group_id", sa.String(length=36)),
        sa.Column("description", sa.String(length=255)),
        sa.Column("tags", sa.JSON()),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["remote_group_id"], ["security_groups.id"], name="fk_security_group_rules_remote_group_id"
        ),
        sa.ForeignKeyConstraint(
            ["security_group_id"], ["security_groups.id"], name="fk_security_group_rules_security_group_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_security_group_rules"),
    )
    op.create_index(
        "ix_security_group_rules_remote_address_group_id", "security_group_rules", ["remote_address_group_id"]
    )
    op.create_index("ix_security_group_rules_remote_group_id", "security_group_rules", ["remote_group_id"])
    op.create_index("ix_security_group_rules_security_group_id", "security_group_rules", ["security_group_id"])
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
        sa.Column("default_quota", sa.Integer()),
        sa.Column("is_default", sa.Boolean(), nullable=False),
        sa.Column("address_scope_id", sa.String(length=36)),
        sa.Column("tags", sa.JSON()),
        sa.Column("updated_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["address_scope_id"], ["address_scopes.id"], name="fk_subnet_pools_address_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_subnet_pools"),
    )
    op.create_index("ix_subnet_pools_address_scope_id", "subnet_pools", ["address_scope_id"])
    op.create_index("ix_subnet_pools_project_id", "subnet_pools", ["project_id"])
    create_table(
        "volume_transfers",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("volume_id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("salt", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["volume_id"], ["volumes.id"], name="fk_volume_transfers_volume_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_volume_transfers"),
    )
    op.create_index("ix_volume_transfers_project_id", "volume_transfers", ["project_id"])
    op.create_index("ix_volume_transfers_volume_id", "volume_transfers", ["volume_id"], unique=True)
    create_table(
        "allocations",
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("compute_node_id", BIG_ID, nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("disk_gb", sa.Integer(), nullable=False),
        sa.Column("numa", sa.JSON(none_as_null=True)),
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["compute_node_id"], ["compute_nodes.id"], name="fk_allocations_compute_node_id"),
        sa.PrimaryKeyConstraint("id", name="pk_allocations"),
        sa.UniqueConstraint(
            "instance_uuid",
            "compute_node_id",
            "generation",
            name="uq_allocations_instance_uuid_compute_node_id_generation",
        ),
    )
    op.create_index("ix_allocations_compute_node_id", "allocations", ["compute_node_id"])
    create_table(
        "floating_ips",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("pool_id", sa.String(length=36), nullable=False),
        sa.Column("address", sa.String(length=45), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("port_id", sa.String(length=36)),
        sa.Column("description", sa.String(length=255)),
        sa.Column("tags", sa.JSON()),
        sa.Column("updated_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["pool_id"], ["floating_ip_pools.id"], name="fk_floating_ips_pool_id"),
        sa.ForeignKeyConstraint(["port_id"], ["ports.id"], name="fk_floating_ips_port_id", ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name="pk_floating_ips"),
        sa.UniqueConstraint("address", name="uq_floating_ips_address"),
        sa.UniqueConstraint("port_id", name="uq_floating_ips_port_id"),
    )
    op.create_index("ix_floating_ips_pool_id", "floating_ips", ["pool_id"])
    op.create_index("ix_floating_ips_project_id_id", "floating_ips", ["project_id", "id"])
    create_table(
        "router_interfaces",
        sa.Column("port_id", sa.String(length=36), nullable=False),
        sa.Column("router_id", sa.String(length=36), nullable=False),
        sa.Column("network_id", sa.String(length=36), nullable=False),
        sa.ForeignKeyConstraint(["network_id"], ["networks.id"], name="fk_router_interfaces_network_id"),
        sa.ForeignKeyConstraint(["port_id"], ["ports.id"], name="fk_router_interfaces_port_id"),
        sa.ForeignKeyConstraint(["router_id"], ["routers.id"], name="fk_router_interfaces_router_id"),
        sa.PrimaryKeyConstraint("port_id", name="pk_router_interfaces"),
        sa.UniqueConstraint("network_id", name="uq_router_interfaces_network_id"),
    )
    op.create_index("ix_router_interfaces_router_id", "router_interfaces", ["router_id"])
    create_table(
        "router_interfaces6",
        sa.Column("port_id", sa.String(length=36), nullable=False),
        sa.Column("router_id", sa.String(length=36), nullable=False),
        sa.Column("network_id", sa.String(length=36), nullable=False),
        sa.ForeignKeyConstraint(["network_id"], ["networks.id"], name="fk_router_interfaces6_network_id"),
        sa.ForeignKeyConstraint(["port_id"], ["ports.id"], name="fk_router_interfaces6_port_id"),
        sa.ForeignKeyConstraint(["router_id"], ["routers.id"], name="fk_router_interfaces6_router_id"),
        sa.PrimaryKeyConstraint("port_id", name="pk_router_interfaces6"),
        sa.UniqueConstraint("network_id", name="uq_router_interfaces6_network_id"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_router_interfaces6_router_id", "router_interfaces6", ["router_id"])
