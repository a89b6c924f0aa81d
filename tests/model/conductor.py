"""The conductor's transactions, each of which is an atomic step. `FUNCTIONS` names the code of each.

``rules`` are the protections in force. Without one of them the step does what code without it would do.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.state import NAMES, NONE, OFF, RUNNING, Action, Message, State, send

CAPACITY = 1

Rules = frozenset[str]

#: Operations that build, operations that need not wait for an undo, and the vm states that allow an operation.
BUILDS = ("create", "rebuild")
TAKE_OVER = ("delete", "rebuild")
ALLOWED = {"stop": ("active", "error"), "start": ("stopped",), "rebuild": ("active", "stopped", "error")}


#: The code that each function of this module models: modules below ``nova_lite``, with their functions.
FUNCTIONS = {
    "release": "db/servers/claims.py: release",
    "_close": "db/core/actions.py: finish",
    "fail": "conductor/engine/compensate.py: fail",
    "mark_deleted": "conductor/operations/delete.py: on_step_done",
    "deleted": "conductor/engine/advance.py: done_at_host, advance",
    "built": "conductor/engine/build_reports.py: built",
    "accept_action": "conductor/actions.py: accept_action; conductor/engine/accept.py: accept",
    "_rebuild": "conductor/operations/rebuild.py: accept",
    "_send_command": "rpcapi/compute.py: send_command",
    "record_offline": "conductor/engine/advance.py: record_offline",
    "lease": "db/core/actions.py: lease, take_due",
    "_locked": "conductor/engine/scheduling.py: _locked; db/core/actions.py: still_leased",
    "claim": "conductor/engine/scheduling.py: _claim; db/servers/claims.py: claim",
    "_building": "conductor/engine/build_reports.py: _building",
    "start_build": "conductor/engine/build_reports.py: start_build",
    "finish_build": "conductor/engine/build_reports.py: finish_build",
    "_rescheduled": "conductor/engine/build_reports.py: _rescheduled",
    "finish_action": "conductor/actions.py: finish_action; conductor/engine/command_reports.py: finish",
    "reconcile_domains": "conductor/hosts/domains.py: reconcile_domains",
    "expire": "conductor/engine/deadlines.py: _expire",
    "fence_answered": "conductor/reconciler.py: _fence, _fenced, _revived",
}

# --- engine/compensate.py, db/servers/claims.py


def release(state: State) -> State:
    held = state.row.alloc
    if held == NONE:
        return state
    used = tuple(value - (index == held) for index, value in enumerate(state.used))
    return state._replace(row=state.row._replace(alloc=NONE), used=used)


def _close(state: State) -> State:
    return state._replace(action=Action(state.action.id, state.action.kind, ""))


def fail(state: State) -> State:
    """Set ERROR. A rebuild keeps its host, where nothing is left."""
    if state.action.kind == "rebuild":
        return _close(state._replace(row=state.row._replace(vm="error", task="")))
    state = _close(release(state))
    return state._replace(row=state.row._replace(vm="error", task="", host=NONE))


def mark_deleted(state: State) -> State:
    return state._replace(row=state.row._replace(vm="deleted", task="", deleted=True))


def deleted(state: State) -> State:
    return _close(release(mark_deleted(state)))


def built(state: State) -> State:
    return _close(state._replace(row=state.row._replace(vm="active", task="", launched=True)))


# --- engine/accept.py


def accept_action(state: State, kind: str, rules: Rules) -> State | None:
    """Accept an action. Returns None if the state does not allow it."""
    row, action = state.row, state.action
    if row.deleted:
        return None
    if kind == "delete":
        if row.task == "deleting" and action.step:
            return None
    elif row.task or not row.launched or row.vm not in ALLOWED[kind]:
        return None
    if action.step == "compensate" and kind not in TAKE_OVER and "undo first" in rules:
        return None
    if kind == "rebuild":
        return _rebuild(state)
    new = Action(action.id + 1, kind, "perform", row.host, row.gen)
    state = state._replace(action=new, requested=kind)
    if row.host == NONE:
        return deleted(state)
    task = {"delete": "deleting", "stop": "powering-off", "start": "powering-on"}[kind]
    return _send_command(state._replace(row=row._replace(task=task)))


def _rebuild(state: State) -> State | None:
    """Give the instance the next generation on the same host."""
    row = state.row._replace(gen=state.row.gen + 1, task="rebuilding")
    if row.host == NONE:
        return None
    action = Action(state.action.id + 1, "rebuild", "build", row.host, row.gen)
    state = state._replace(row=row, action=action, requested="rebuild")
    return send(state, Message("build", row.host, row.gen, action.id))


def _send_command(state: State) -> State:
    action = state.action
    return send(state, Message("run_command", action.host, action.gen, action.id, action.kind))


def record_offline(state: State, rules: Rules) -> State:
    """Delete for the owner while the host counts as down, rightly or not. The cleanup stays open."""
    if "cleanup" not in rules:
        return deleted(state)
    state = mark_deleted(state)
    return state._replace(action=state.action._replace(step="cleanup"))


# --- engine/scheduling.py


def lease(state: State) -> State:
    """Lease the action to a new owner, and add a thread that will schedule it."""
    busy = {owner for owner, _ in state.threads}
    owner = min({0, 1, 2} - busy)
    threads = tuple(sorted((*state.threads, (owner, state.action.tried))))
    return state._replace(action=state.action._replace(owner=owner), threads=threads)


def _locked(state: State, owner: int, rules: Rules) -> bool:
    action, row = state.action, state.row
    if "one driver" not in rules:
        return not row.deleted
    leased = action.kind == "create" and action.step == "schedule" and action.owner == owner
    return leased and not row.deleted and row.task == "scheduling"


def claim(state: State, thread: tuple[int, tuple[int, ...]], host: int, rules: Rules) -> State:
    """End the thread, with a claim if the build is still its own. The code claims for several instances at once."""
    owner, _ = thread
    state = state._replace(threads=tuple(item for item in state.threads if item != thread))
    if not _locked(state, owner, rules) or state.used[host] >= CAPACITY:
        return state
    row = state.row
    gen = row.gen + 1
    used = tuple(value + (index == host) for index, value in enumerate(state.used))
    action = state.action._replace(step="build", host=host, gen=gen, owner=NONE)
    state = state._replace(row=row._replace(host=host, gen=gen, alloc=host), used=used, action=action)
    return send(state, Message("build", host, gen, action.id))


# --- engine/build_reports.py, engine/command_reports.py


def _building(state: State, host: int, gen: int, rules: Rules) -> bool:
    row, action = state.row, state.action
    if row.deleted or row.task == "deleting" or action.kind not in BUILDS or action.step != "build":
        return False
    mine = (row.host, row.gen) == (host, gen) and (row.vm == "building" or action.kind == "rebuild")
    return "report generation" not in rules or mine


def start_build(state: State, host: int, gen: int, rules: Rules) -> tuple[State, bool]:
    """Start a build. The second value is whether the build is still wanted."""
    if not _building(state, host, gen, rules):
        return state, False
    return state._replace(row=state.row._replace(task="spawning")), True


def finish_build(state: State, host: int, gen: int, outcome: str, rules: Rules) -> tuple[State, bool]:
    """Finish a build. The second value is False for `StaleReport` or `InstanceGone`, the replies to a late BUILT."""
    row, action = state.row, state.action
    if outcome == "built":
        known = row.launched and not row.deleted and row.task != "deleting" and (row.host, row.gen) == (host, gen)
        if known and action.step not in ("build", "compensate"):
            return state, True
        compensating = action.step == "compensate" and (row.host, row.gen) == (host, gen) and not row.deleted
        if compensating and "late success" in rules:
            return built(state), True
    if not _building(state, host, gen, rules):
        return state, outcome != "built"
    if outcome == "built":
        return built(state), True
    return (fail(state), True) if outcome == "aborted" else (_rescheduled(state, host), True)


def _rescheduled(state: State, host: int) -> State:
    tried = tuple(sorted({*state.action.tried, host}))
    if len(tried) >= state.attempts or state.action.kind == "rebuild":
        return fail(state)
    state = release(state)
    row = state.row._replace(host=NONE, task="scheduling")
    return state._replace(row=row, action=state.action._replace(step="schedule", host=NONE, tried=tried, owner=NONE))


def finish_action(state: State, host: int, action_id: int, result: str, rules: Rules) -> State:
    """Finish an action. ``result``: "ok", or "error" if there was no domain to act on."""
    row, action = state.row, state.action
    if action.id != action_id:
        return state
    if not action.step or action.host != host:
        return state
    if action.kind == "delete":
        return deleted(state)
    vm = {"stop": "stopped", "start": "active"}[action.kind] if result == "ok" else "error"
    return _close(state._replace(row=row._replace(vm=vm, task="")))


def reconcile_domains(state: State, host: int, gen: int, power: int) -> tuple[State, str]:
    """Return the verdict on one domain, and the state with its power state.

    Verdicts are "keep", "destroy", and "" (left alone).
    """
    row = state.row
    belongs = not row.deleted and (row.host, row.gen) == (host, gen)
    if not belongs:
        return state, "destroy" if gen <= row.gen else ""
    if not row.task and row.vm in ("active", "stopped"):
        vm = {RUNNING: "active", OFF: "stopped"}[power]
        state = state._replace(row=row._replace(vm=vm))
    return state, "keep"


# --- engine/deadlines.py, engine/reconciler.py


def expire(state: State, rules: Rules) -> State:
    row, action = state.row, state.action
    if action.kind == "create" and action.step == "schedule":
        return fail(state)
    if action.kind in BUILDS:
        row = row._replace(vm="error", task="")
        state = state._replace(row=row, action=action._replace(step="compensate"))
        return send(state, Message("fence", action.host, action.gen))
    if action.kind == "delete":
        if "lasting delete" in rules:
            return state._replace(row=row._replace(vm="error"))
        return _close(state._replace(row=row._replace(vm="error", task="")))
    return _close(state._replace(row=row._replace(task=""), requested="nothing"))


def fence_answered(state: State, host: int, gen: int, fenced: bool) -> State:
    """Record the reply to `fence_instance`."""
    action = state.action
    if action.step != "compensate" or (action.host, action.gen) != (host, gen) or state.row.deleted:
        return state
    return fail(state) if fenced else built(state)


def steps(state: State, rules: Rules, users: tuple[str, ...], max_actions: int) -> Iterator[tuple[str, bool, State]]:
    """Yield the steps of users, conductors and time."""
    row, action = state.row, state.action
    reconciled = "reconciler" in rules
    for kind in users:
        if action.id < max_actions:
            accepted = accept_action(state, kind, rules)
            if accepted is not None:
                yield f"accept_action({kind})", False, accepted
    if action.step == "schedule" and len(state.threads) < 2:
        yield "lease: the create, then call the scheduler", reconciled, lease(state)
    for thread in state.threads:
        for host in range(len(state.hosts)):
            if host not in thread[1]:
                yield f"_claim: thread {thread[0]} takes {_name(host)}", True, claim(state, thread, host, rules)
    lost = reconciled and action.host != NONE and state.hosts[action.host].daemon == "lost"
    if action.kind == "delete" and action.step == "perform":
        yield f"{_name(row.host)} counts as down: record_offline", lost, record_offline(state, rules)
    if action.step in ("schedule", "build", "perform"):
        yield f"_expire({action.kind})", lost, expire(state, rules)
    if "confirmation" not in rules and action.step == "build" and len(action.tried) + 1 < state.attempts:
        yield (
            f"{_name(action.host)} counts as down: rescheduled without a confirmation",
            False,
            _rescheduled(state, action.host),
        )


def _name(host: int) -> str:
    return "-" if host == NONE else f"host {NAMES[host]}"


def problem(state: State) -> str | None:
    """Return a broken invariant between rows, if any."""
    row = state.row
    if state.used != tuple(int(row.alloc == host) for host in range(len(state.hosts))):
        return "used counters differ from allocations"
    if max(state.used) > CAPACITY:
        return "more is given out than a host has"
    if row.task and not state.action.step:
        return "a task state without an open action"
    return None
