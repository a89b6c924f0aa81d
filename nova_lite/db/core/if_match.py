"""Changes on the condition that a resource has not changed since the caller has read it (``If-Match``)."""

from __future__ import annotations

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.objects.network import Revised, revision_number


def check(context: RequestContext, row: Revised) -> None:
    """Raise `RevisionNumberConstraintFailed` unless the locked row has the revision that the request names, if any."""
    _compare(context, revision_number(row))


def check_unchanging(context: RequestContext) -> None:
    """Raise the same error for a resource that never changes."""
    _compare(context, 1)


def _compare(context: RequestContext, current: int) -> None:
    if context.revision not in (None, current):
        raise exceptions.RevisionNumberConstraintFailed(expected=context.revision, current=current)
