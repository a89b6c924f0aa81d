"""Facts about a request that parts of an API note for the audit log. The request's environment carries them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

_NOTES = "nova_lite.audit"


@dataclasses.dataclass(slots=True)
class Notes:
    """Facts about a request.

    ``path``: the path of its route, with names of variables in braces; empty if no route serves the URL. ``action``:
    the name of the action in its body, which a table of this program has. ``made_id``: the id of a new resource.
    ``user_id``, ``project_id``: the caller of a log-in, who has no context yet. ``credential``: what limits the caller.
    """

    path: str = ""
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    action: str = ""
    made_id: str = ""
    user_id: str = ""
    project_id: str = ""
    credential: str = ""


def of(environ: dict[str, Any]) -> Notes:
    """Return the notes of a request, to read or to add to them."""
    notes: Notes | None = environ.get(_NOTES)
    if notes is None:
        notes = environ[_NOTES] = Notes()
    return notes


def route(environ: dict[str, Any], path: str, variables: Mapping[str, str], action: str | None = None) -> None:
    notes = of(environ)
    notes.path, notes.variables, notes.action = path, variables, action or ""


def caller(environ: dict[str, Any], user_id: str | None, project_id: str | None = None) -> None:
    """Note who logs in. ``user_id``: of a known user, also if the password is wrong; None if there is no such user."""
    notes = of(environ)
    notes.user_id, notes.project_id = user_id or "", project_id or ""


def made(environ: dict[str, Any], body: Any) -> None:
    """Note the id of the resource in the body of a response, which is ``{kind: {"id": ...}}`` or ``{"id": ...}``."""
    if not isinstance(body, dict):
        return
    item = next(iter(body.values()), None) if len(body) == 1 else body
    if isinstance(item, dict) and isinstance(item.get("id"), str | int):
        of(environ).made_id = str(item["id"])
