"""Volumes, their snapshots, attachments and transfers."""

from __future__ import annotations

from typing import Any, Protocol

from nova_lite import rpc
from nova_lite.base.context import RequestContext
from nova_lite.objects import (
    ActionCommand,
    Image,
    Volume,
    VolumeAttachment,
    VolumeConnection,
    VolumeEncryption,
    VolumeFilters,
    VolumeSnapshot,
    VolumeTransfer,
    VolumeUse,
    VolumeVerb,
)


class VolumeRPC(Protocol):
    """Volumes, their snapshots, attachments and transfers."""

    @rpc.list_(rpc.API)
    def volume_list(
        self,
        context: RequestContext,
        filters: VolumeFilters,
        limit: int | None,
        marker: str | None,
        sort_keys: list[str],
        sort_dirs: list[str],
        offset: int,
    ) -> list[Volume]: ...

    @rpc.read(rpc.API)
    def volume_get(self, context: RequestContext, volume_id: str) -> Volume:
        """Return a volume of the context's project, for an admin of any project.

        Like the next methods, raises `VolumeNotFound` for a volume of another project.
        """

    @rpc.change(rpc.API)
    def volume_create(self, context: RequestContext, volume: Volume, images: dict[str, Image]) -> Volume:
        """Accept a volume; a host then creates its file. Raises a 4xx.

        ``volume``: the request, under the id that the API chose for it; its ``image`` names the image. ``images``:
        descriptions by the API, by id.
        """

    @rpc.change(rpc.API)
    def volume_update(
        self,
        context: RequestContext,
        volume_id: str,
        changes: dict[str, Any],
        merge: bool = False,
    ) -> Volume:
        """Set ``name``, ``description``, ``metadata`` (all of it), ``bootable``, ``volume_type`` (its name or id),
        ``image_metadata`` (all of it) or, for an admin, ``status``.

        ``merge``: metadata are added to the stored ones, and an item of None is removed. Raises a 4xx for too many.
        """

    @rpc.change(rpc.API)
    def volume_upload(self, context: RequestContext, volume_id: str, image: Image) -> Volume:
        """Accept that the data of an unused volume become a new image of the caller's project. Raises a 4xx."""

    @rpc.delete(rpc.API)
    def volume_delete(self, context: RequestContext, volume_id: str, cascade: bool = False) -> None:
        """Accept the deletion of a volume. A host deletes the file, then the conductor deletes the row.

        ``cascade``: delete its snapshots first.
        """

    @rpc.change(rpc.API)
    def volume_extend(self, context: RequestContext, volume_id: str, size: int, attached: bool) -> None:
        """Accept a new ``size`` in GB. ``attached``: also for a volume that a server has."""

    @rpc.list_(rpc.API)
    def snapshot_list(
        self,
        context: RequestContext,
        filters: VolumeFilters,
        limit: int | None,
        marker: str | None,
        sort_keys: list[str],
        sort_dirs: list[str],
        offset: int,
    ) -> list[VolumeSnapshot]: ...

    @rpc.read(rpc.API)
    def snapshot_get(self, context: RequestContext, snapshot_id: str) -> VolumeSnapshot: ...

    @rpc.change(rpc.API)
    def snapshot_create(self, context: RequestContext, snapshot: VolumeSnapshot, force: bool = False) -> VolumeSnapshot:
        """Accept a snapshot. ``force``: also of a volume that a server has."""
        ...

    @rpc.change(rpc.API)
    def snapshot_update(
        self,
        context: RequestContext,
        snapshot_id: str,
        changes: dict[str, Any],
        merge: bool = False,
    ) -> VolumeSnapshot:
        """Set ``name``, ``description``, ``metadata`` or, for an admin, ``status``. ``merge``: as `volume_update`."""

    @rpc.delete(rpc.API)
    def snapshot_delete(self, context: RequestContext, snapshot_id: str) -> None: ...

    @rpc.read(rpc.API)
    def volume_usage(self, context: RequestContext, project_id: str) -> VolumeUse: ...

    @rpc.change(rpc.API)
    def attachment_update(
        self, context: RequestContext, instance_uuid: str, volume_id: str, delete_on_termination: bool
    ) -> None:
        """Set whether the volume is deleted with the server.

        Raises `VolumeBDMNotFound` if the server does not have the volume.
        """

    @rpc.list_(rpc.API)
    def volume_transfer_list(self, context: RequestContext, all_projects: bool) -> list[VolumeTransfer]: ...

    @rpc.read(rpc.API)
    def volume_transfer_get(self, context: RequestContext, transfer_id: str) -> VolumeTransfer: ...

    @rpc.change(rpc.API)
    def volume_transfer_create(
        self, context: RequestContext, transfer: VolumeTransfer, salt: str, digest: str
    ) -> VolumeTransfer:
        """Offer a volume. ``digest``: of the key that accepts the offer (`nova_lite.objects.volume`)."""

    @rpc.change(rpc.API)
    def volume_transfer_accept(self, context: RequestContext, transfer_id: str, key: str) -> VolumeTransfer:
        """Take over an offered volume and its snapshots, within the project's quota."""

    @rpc.delete(rpc.API)
    def volume_transfer_delete(self, context: RequestContext, transfer_id: str) -> None: ...

    @rpc.change(rpc.API)
    def volume_attachment_set(
        self, context: RequestContext, volume_id: str, attachment: VolumeAttachment | None, expected: str | None
    ) -> Volume:
        """Set, change or remove (None) the attachment that the volume API makes. ``expected``: the id of the present
        one, None for a free volume. Raises a 400, 404 or 409.
        """

    @rpc.change(rpc.API)
    def volume_reserve(self, context: RequestContext, volume_id: str, reserved: bool) -> None:
        """Reserve a free volume, or end that. Raises `VolumeNotFound` or `InvalidVolume`."""

    @rpc.read(rpc.API)
    def volume_encryption_get(self, context: RequestContext, volume_id: str) -> VolumeEncryption:
        """Return the encryption of a volume that the context may see. Raises `VolumeNotFound`."""

    @rpc.change(rpc.API)
    def volume_created(
        self, context: RequestContext, instance_uuid: str, device_uuid: str, volume_id: str | None, error: str | None
    ) -> bool:
        """Record that Cinder creates the volume of a block device, or (``error``) does not.

        Return False if the volume is no longer needed.
        """

    @rpc.change(rpc.API)
    def volume_extended(self, context: RequestContext, instance_uuid: str, volume_id: str) -> None:
        """Record that Cinder has extended the volume, and notify the guest.

        Raises `VolumeBDMNotFound` if the server does not have the volume.
        """

    @rpc.change(rpc.API)
    def accept_volume_snapshot(
        self, context: RequestContext, volume_id: str, action: str, payload: dict[str, Any]
    ) -> ActionCommand:
        """Accept work on the files of a volume of Cinder's, for the server that has it, as `accept_action` does.

        ``action``: ``volume_snapshot_create`` or ``volume_snapshot_delete``. Raises `InvalidVolume` if the volume is in
        no server, or not in files.
        """

    @rpc.report(rpc.COMPUTE, own="host")
    def finish_volume_work(self, context: RequestContext, host: str, task_id: int, error: str | None) -> None:
        """Report work on a volume's file as done (``error`` None) or failed. Repeated reports are harmless."""

    @rpc.report(rpc.COMPUTE, own="host", replay_safe=True)
    def is_volume_work_open(self, context: RequestContext, host: str, task_id: int, volume_id: str) -> bool:
        """Check whether the conductor waits for this work on a volume.

        A late command of ended work must neither change what a guest has written since, nor make what was deleted.
        """

    @rpc.report(rpc.COMPUTE, own="host", replay_safe=True)
    def is_volume_data_needed(self, context: RequestContext, host: str, verb: VolumeVerb, made_id: str) -> bool:
        """Check whether the volume, snapshot or backup whose data the host has just made still exists.

        Return False if it is deleted or being deleted, perhaps before its data had their name.
        """

    @rpc.report(rpc.COMPUTE, own="host", replay_safe=True)
    def volume_key_get(self, context: RequestContext, host: str, volume_id: str, public_key: str) -> str:
        """Return the key of an encrypted volume (`nova_lite.objects.VolumeKey`), sealed to ``public_key``.

        A server on the host has the volume, or the host works on it. Raises `VolumeKeyUnavailable` otherwise, and
        `MasterKeysUnreadable`.
        """

    @rpc.report(rpc.COMPUTE, own="host", replay_safe=True)
    def tpm_key_get(self, context: RequestContext, host: str, instance_uuid: str, public_key: str) -> str:
        """Return the key of a server's TPM, as `volume_key_get` does. The first request of a server makes it.

        The server is on the host, or moves from or to it. Raises `TPMKeyUnavailable` otherwise.
        """

    @rpc.report(rpc.COMPUTE, own="host", replay_safe=True)
    def disk_key_get(self, context: RequestContext, host: str, instance_uuid: str, role: str, public_key: str) -> str:
        """Return the key of an encrypted disk of a server, as `tpm_key_get` does. ``role``: one of `DISK_ROLES`.

        Raises `DiskKeyUnavailable` if the server is not on the host, or its disks are not encrypted.
        """

    @rpc.report(rpc.COMPUTE, own="host")
    def volume_connect(
        self, context: RequestContext, host: str, instance_uuid: str, device_uuid: str, connector: dict[str, Any]
    ) -> VolumeConnection:
        """Let Cinder connect the volume of a block device to a host that the instance is on or moves to.

        ``connector``: the host's properties, for Cinder. A repeated call returns the same. Raises `VolumeNotReady`
        while Cinder creates the volume, and `VolumeServiceUnavailable`. `VolumeNotCreated` and `InvalidVolume` are
        final.
        """
