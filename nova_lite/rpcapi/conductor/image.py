"""Images, their members and metadata definitions."""

from __future__ import annotations

from typing import Any, Protocol

from nova_lite import rpc
from nova_lite.base.context import RequestContext
from nova_lite.objects import (
    Image,
    ImageMember,
    ImageQuery,
    MetadefNamespace,
)
from nova_lite.rpc.admission import Priority


class ImageRPC(Protocol):
    """Images, their members and metadata definitions."""

    @rpc.list_(rpc.API)
    def image_list(self, context: RequestContext, query: ImageQuery) -> list[Image]:
        """Return the images of the built-in backend that the context's project may see, as far as the query selects
        them. Raises `MarkerNotFound`, or `InvalidSortKey`.
        """

    @rpc.read(rpc.API, rpc.COMPUTE, priority=Priority.CHANGE)
    def image_get(self, context: RequestContext, image_id: str) -> Image: ...

    @rpc.change(rpc.API)
    def image_create(self, context: RequestContext, image: Image) -> Image:
        """Write the image's row as given. Raises `ImageExists` when the id is taken."""

    @rpc.report(rpc.API, rpc.COMPUTE, rpc.CONDUCTOR)
    def image_update(
        self,
        context: RequestContext,
        image_id: str,
        changes: dict[str, Any],
        expected_status: str | None,
        tags: dict[str, bool] | None = None,
    ) -> Image:
        """Set the fields in ``changes``. Properties are merged; a property of None is deleted. ``tags``: those to add
        (true) and to remove, beside which all others stay.

        Only the owner or an admin may do this. With ``expected_status``, an image in another status raises
        `ImageStatusConflict`.
        """

    @rpc.delete(rpc.API)
    def image_delete(self, context: RequestContext, image_id: str) -> None: ...

    @rpc.list_(rpc.API)
    def image_member_list(self, context: RequestContext, image_id: str) -> list[ImageMember]:
        """Return the members of a shared image; a member gets itself alone. Raises `ImageNotFound` or `Forbidden`."""

    @rpc.change(rpc.API)
    def image_member_add(self, context: RequestContext, image_id: str, member_id: str) -> ImageMember:
        """Share an image with another project. Raises a 403, 404, 409 or 413."""

    @rpc.change(rpc.API)
    def image_member_update(self, context: RequestContext, image_id: str, member_id: str, status: str) -> ImageMember:
        """Accept or reject an image, as its member."""

    @rpc.delete(rpc.API)
    def image_member_delete(self, context: RequestContext, image_id: str, member_id: str) -> None: ...

    @rpc.list_(rpc.API)
    def metadef_list(self, context: RequestContext) -> list[MetadefNamespace]:
        """Return the namespaces of metadata definitions that the context's project may see."""

    @rpc.read(rpc.API)
    def metadef_get(self, context: RequestContext, namespace: str) -> MetadefNamespace: ...

    @rpc.change(rpc.API)
    def metadef_create(self, context: RequestContext, namespace: MetadefNamespace) -> MetadefNamespace: ...

    @rpc.change(rpc.API)
    def metadef_update(self, context: RequestContext, namespace: str, changes: dict[str, Any]) -> MetadefNamespace: ...

    @rpc.change(rpc.API)
    def metadef_parts_change(
        self,
        context: RequestContext,
        namespace: str,
        kind: str,
        changes: dict[str, dict[str, Any] | None],
        new: list[str],
        clear: bool,
    ) -> MetadefNamespace:
        """Change the parts of one kind by name; None removes a part. ``new``: names that must not be taken. ``clear``:
        remove all others. Raises `NotFound`, `Conflict` or `Forbidden`.
        """

    @rpc.delete(rpc.API)
    def metadef_delete(self, context: RequestContext, namespace: str) -> None: ...

    @rpc.read(rpc.API)
    def host_image_get(self, context: RequestContext, host: str, image_id: str) -> Image:
        """Return an image that this host makes. Raises `ImageNotFound` for any other."""
