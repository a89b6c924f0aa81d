"""Generator of ``docs/reference/operations.md`` from `nova_lite.operations`. Its head is written by hand."""

from __future__ import annotations

from collections.abc import Iterator

from nova_lite import operations
from nova_lite.api.http import inventory, reference
from nova_lite.base import markdown
from nova_lite.operations import HostRole, HostStep, Operation, ScheduleStep, Step

#: The page is handwritten above this line.
MARK = "<!-- Made by `nova-lite-manage api operations` from here on. -->\n"

#: The requests of operations whose definitions name no action of `/servers/{id}/action`, as route and action.
_REQUESTS = {
    "create": ("POST /servers", None),
    "delete": ("DELETE /servers/{id}", None),
    **{
        kind: ("POST /servers/{id}/action", kind)
        for kind in ("createImage", "createBackup", "shelve", "shelveOffload", "unshelve")
    },
    "evacuate": ("POST /servers/{id}/action", "evacuate"),
    "rebuild": ("POST /servers/{id}/action", "rebuild"),
    "lock": ("POST /servers/{id}/action", "lock"),
    "unlock": ("POST /servers/{id}/action", "unlock"),
    "attach_volume": ("POST /servers/{server_id}/os-volume_attachments", None),
    "detach_volume": ("DELETE /servers/{server_id}/os-volume_attachments/{id}", None),
    "swap_volume": ("PUT /servers/{server_id}/os-volume_attachments/{id}", None),
    "attach_interface": ("POST /servers/{server_id}/os-interface", None),
    "detach_interface": ("DELETE /servers/{server_id}/os-interface/{port_id}", None),
    "attach_share": ("POST /servers/{server_id}/shares", None),
    "detach_share": ("DELETE /servers/{server_id}/shares/{id}", None),
    "create_point": ("POST /servers/{server_id}/os-snapshot-points", None),
    "delete_point": ("DELETE /servers/{server_id}/os-snapshot-points/{id}", None),
    "revert_to_point": ("POST /servers/{server_id}/os-snapshot-points/{id}/revert", None),
    "clone": ("POST /servers/{server_id}/os-clones", None),
    "volume_snapshot_create": ("POST /os-assisted-volume-snapshots", None),
    "volume_snapshot_delete": ("DELETE /os-assisted-volume-snapshots/{id}", None),
    "reset_state": ("POST /servers/{id}/action", "os-resetState"),
}


def page() -> str:
    """Return the generated part of the page, with its mark."""
    forms = list(_forms())
    overview = "".join(
        f"| {title} | {_allowed(form)} | {_becomes(form)} | {_failed(form)} |\n"
        for title, form in forms
        if not form.reported
    )
    head = "| operation | allowed in | meanwhile, then | if it fails |\n|---|---|---|---|\n"
    return "\n".join([MARK, f"## All of them\n\n{head}{overview}", *(_section(*form) for form in forms)])


def _forms() -> Iterator[tuple[str, Operation]]:
    """Yield each operation and its variants, with their titles."""
    for definition in operations.OPERATIONS.values():
        yield definition.kind, definition
        for key, value, variant in definition.variants:
            yield f"{definition.kind} ({key}: {value})", variant


def _section(title: str, definition: Operation) -> str:
    if definition.reported:
        return f"## {title}\n\n- No user requests it. It records what a hypervisor has reported of a guest.\n"
    facts = [markdown.item(f"Request: {_request(definition)}.")]
    if definition.kind != operations.CREATE.kind:
        facts.append(markdown.item(f"Refused (409): {', '.join(_refusals(definition)) or 'never by its definition'}."))
        if definition.during:
            facts.append(markdown.item(f"Accepted during the tasks {', '.join(definition.during)}."))
        open_action = "closed" if definition.supersedes else "left as it is"
        facts.append(f"- When it is accepted, an open action is {open_action}.")
    if definition.deduplicates:
        facts.append("- A request while such an action is open returns that action.")
    if definition.steps:
        columns = ("step", "where", "RPC method", "task state", "event", "deadline", "then it is", "undo", "notes")
        table = "".join(_line(definition, step) for step in definition.all_steps())
        facts.append("")
        facts.append(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n{table}".rstrip())
    else:
        facts.append("- Done when it is accepted.")
    return f"## {title}\n\n" + "\n".join(facts) + "\n"


def _request(definition: Operation) -> str:
    """Return the route, the rule, and who passes it by default."""
    kind = operations.OPERATIONS[definition.kind]
    route, action = _REQUESTS.get(definition.kind, ("POST /servers/{id}/action", kind.action))
    entry = next(
        route_entry
        for route_entry in inventory.route_entries()
        if (f"{route_entry.method} {route_entry.path}", route_entry.action) == (route, action)
    )
    rule = kind.rule or entry.declared.policy
    return f"`{route}`" + (f" `{action}`" if action else "") + f", `{rule}` ({reference.who_may(rule)})"


def _refusals(definition: Operation) -> Iterator[str]:
    """Yield the causes of a refusal, as the head of the page explains them."""
    if not definition.despite_lock:
        yield "locked"
    if definition.allowed is not None:
        yield "vm state"
    if definition.during is not None:
        yield "task state"
    if definition.supersedes and not definition.preempts:
        yield "undo"
    if definition.needs_host:
        yield "no host"
    if definition.loses_tpm:
        yield "TPM"
    if definition.copies_root:
        yield "encrypted root disk"
    if definition.copies_memory:
        yield from ("shares", "encrypted memory")
    if definition.without_points:
        yield "snapshot points"


def _line(definition: Operation, step: Step) -> str:
    is_undo = definition.is_undo(step.name)
    where, method = "conductor", ""
    if isinstance(step, ScheduleStep):
        where, method = "conductor, scheduler", "select_destinations"
    elif isinstance(step, operations.NetworkStep):
        where = "network backend"
    elif isinstance(step, operations.ImageStep):
        where = "image backend"
    elif isinstance(step, operations.SnapshotStep):
        where = "Cinder"
    elif isinstance(step, HostStep):
        where, method = _WHERE[step.at], step.method
    task = ", ".join(map(_code, _tasks(step)))
    cells = (
        f"(undo) {step.name}" if is_undo else step.name,
        where,
        _code(method),
        task,
        _code(step.event),
        _deadline(step, is_undo),
        _code(step.becomes),
        ", ".join(undo.name for undo in step.undo),
        "; ".join(_notes(step)),
    )
    return f"| {' | '.join(cells)} |\n"


_WHERE = {
    HostRole.CURRENT: "its host",
    HostRole.ALL: "every host where it holds something",
    HostRole.SOURCE: "source",
    HostRole.DESTINATION: "destination",
}


def _deadline(step: Step, is_undo: bool) -> str:
    """Return the deadline that ends the step if nothing else does."""
    if isinstance(step, HostStep) and step.retry_forever:
        return "none" if is_undo or step.at in operations.MOVE_ROLES else "only reported"
    if step.outlives_action:
        return "none"
    if isinstance(step, ScheduleStep | HostStep | operations.ServiceStep):
        return _code(f"[conductor] {step.deadline}") if step.deadline else "the action's"
    return ""


def _notes(step: Step) -> Iterator[str]:
    if step.commits:
        yield "point of no return"
    if step.moves_to:
        yield f"then it is at the {_WHERE[step.moves_to]}"
    if isinstance(step, ScheduleStep) and not step.moves:
        yield "claims the destination"
    if isinstance(step, operations.ReleaseStep) and step.at in operations.MOVE_ROLES:
        yield f"of the {_WHERE[step.at]}"
    if step.only_if:
        yield f"only if `{step.only_if}`"
    if step.outlives_action:
        yield "until it has worked, beside later operations"
    if isinstance(step, HostStep):
        if step.fences:
            yield "fenced first"
        if step.retry_forever:
            yield "until it has worked"
        if step.offline_step:
            yield f"`{step.offline_step}` while the host is away"
        if step.driver:
            yield f"driver's `{step.driver}`"
        if step.since != "2.0":
            yield f"since compute {step.since}"


def _allowed(definition: Operation) -> str:
    if definition.kind == operations.CREATE.kind:
        return "(new)"
    during = "; any task" if definition.during is None else "; during tasks, see below" if definition.during else ""
    return ("any" if definition.allowed is None else ", ".join(definition.allowed)) + during


def _becomes(definition: Operation) -> str:
    """Return the task states in their order, then the vm state."""
    tasks = [state for step in definition.steps for state in _tasks(step)]
    states = [
        f"{step.becomes} (if `{step.only_if}`)" if step.only_if else step.becomes
        for step in definition.steps
        if step.becomes
    ]
    return " → ".join([*tasks, f"**{' or '.join(states)}**"] if states else tasks)


def _tasks(step: Step) -> list[str]:
    """Return the step's task states, in order."""
    on_host = (step.begun, *step.tasks) if isinstance(step, HostStep) else ()
    return [state for state in (step.task, *on_host) if state]


def _failed(definition: Operation) -> str:
    if definition.failed:
        return definition.failed
    retry_forever = [step for step in definition.steps if isinstance(step, HostStep) and step.retry_forever]
    if retry_forever:
        return "it continues" if retry_forever[0].at in operations.MOVE_ROLES else "error, and it continues"
    if any(step.undo for step in definition.steps):
        return "as it was"
    return "as its guest is" if definition.steps else ""


def _code(text: str | None) -> str:
    return f"`{text}`" if text else ""
