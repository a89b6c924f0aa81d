"""The steps of a compute daemon. `FUNCTIONS` names the code of each.

Each step is atomic. Between any two of them the daemon may be killed, and others may continue. A `Job` is about to do
the step that its ``at`` names. `_LOCKED` has the steps that hold the instance's lock.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model import conductor
from tests.model.conductor import Rules
from tests.model.state import IDLE, NAMES, OFF, RUNNING, Host, Job, Message, State, at_host, send

Step = tuple[str, bool, State]

_LOCKED = {
    "start_build",
    "unwanted",
    "creating",
    "define",
    "start domain",
    "built",
    "refuse",
    "undo",
    "clear",
    "fence remove",
    "act",
    "scan remove",
}


#: The code that each function of this module models: modules below ``nova_lite``, with their functions.
FUNCTIONS = {
    "is_locked": "compute/jobs.py: hold",
    "is_revoked": "compute/fencing.py: is_revoked",
    "revoke": "compute/fencing.py: revoke, revoke_failed_build",
    "is_complete": "compute/host.py: is_complete",
    "mark_built": "compute/fencing.py: mark_built",
    "remove": "compute/host.py: remove",
    "_build_steps": "compute/operations/create.py: run, _build_or_undo, _build, _remove_unwanted",
    "_attempt": "compute/operations/create.py: _attempt, _repeat_failure",
    "_reporting": "compute/operations/create.py: _report",
    "_admit": "compute/fencing.py: admit",
    "_act_steps": "compute/executor.py: run, _run_once, _report",
    "carry_out": "compute/executor.py: _perform; compute/fencing.py: record_result",
    "_fence_begins": "compute/manager.py: fence_instance; compute/fencing.py: revoke_unless_built",
    "_fence_steps": "compute/manager.py: fence_instance",
    "_scan_steps": "compute/reconciler.py: run, _scan, _destroy_revoked, _destroy",
}


def is_locked(host: Host, rules: Rules) -> bool:
    jobs = (host.build, host.fence, host.scan, *host.acts)
    return "instance lock" in rules and any(job.at in _LOCKED for job in jobs)


# --- fencing.py


def is_revoked(host: Host, gen: int) -> bool:
    return gen <= host.fenced and gen != host.built


def revoke(host: Host, gen: int, rules: Rules) -> Host:
    return host._replace(fenced=max(host.fenced, gen)) if "revocation" in rules else host


def is_complete(host: Host, gen: int) -> bool:
    return host.domain == gen and (host.built == gen or (host.power == RUNNING and not is_revoked(host, gen)))


def mark_built(host: Host) -> Host:
    return host._replace(built=host.domain)


def remove(host: Host) -> Host:
    return host._replace(domain=0, power=0, built=0)


def _put(state: State, index: int, host: Host) -> State:
    hosts = list(state.hosts)
    hosts[index] = host
    return state._replace(hosts=tuple(hosts))


# --- one host


def steps(state: State, index: int, rules: Rules) -> Iterator[Step]:
    host = state.hosts[index]
    name = NAMES[index]
    if host.daemon == "down":
        yield f"{name}: daemon starts", True, at_host(state, index, daemon="starting")
        return
    if host.daemon == "lost":
        return
    if state.losses:
        lost = crash(state, index, rules)._replace(crashes=state.crashes, losses=state.losses - 1)
        yield f"{name}: is lost for good", False, at_host(lost, index, daemon="lost")
    if state.crashes:
        yield f"{name}: daemon is killed", False, crash(state, index, rules)
    for generator in (_build_steps, _act_steps, _fence_steps, _scan_steps):
        for label, progress, after in generator(state, index, host, rules):
            yield f"{name}: {label}", progress, after


def crash(state: State, index: int, rules: Rules) -> State:
    host = state.hosts[index]
    gone = host._replace(daemon="down", build=IDLE, acts=(), fence=IDLE, scan=IDLE, touched=False)
    if "durable revocation" not in rules:
        gone = gone._replace(fenced=0, built=0, last=0, result="")
    return _put(state, index, gone)._replace(crashes=state.crashes - 1)


def deliver(state: State, message: Message, rules: Rules) -> Iterator[Step]:
    """Deliver a message. It is progress only if the conductor would send the message again."""
    index, host, action = message.host, state.hosts[message.host], state.action
    label = f"{NAMES[index]} gets {message.kind} {message.what} generation {message.gen}"
    if message.kind in ("report", "answer"):
        yield from _deliver_to_conductor(state, message, rules)
        return
    if host.daemon != "serving":
        return
    current = "reconciler" in rules and (action.host, action.gen) == (index, message.gen)
    if message.kind == "build" and not host.build.at:
        job = Job("queued", message.gen, message.id)
        progress = current and action.step == "build"
        yield label, progress, at_host(state, index, build=job, touched=bool(host.scan.at))
    elif message.kind == "run_command" and not any(job.id == message.id for job in host.acts) and len(host.acts) < 2:
        progress = current and action.step in ("perform", "cleanup") and action.id == message.id
        yield label, progress, _put(state, index, _admit(host, message, rules))
    elif message.kind == "fence" and not host.fence.at:
        yield label, current and action.step == "compensate", _put(state, index, _fence_begins(host, message, rules))


def _deliver_to_conductor(state: State, message: Message, rules: Rules) -> Iterator[Step]:
    index, host = message.host, state.hosts[message.host]
    if message.kind == "report":
        after, _ = conductor.finish_build(state, index, message.gen, message.what, rules)
        yield f"conductor gets a late report: {message.what} at {NAMES[index]} generation {message.gen}", False, after
        return
    fenced = message.what == "fenced"
    would_say_so = not host.domain if fenced else is_complete(host, message.gen)
    after = conductor.fence_answered(state, index, message.gen, fenced)
    label = f"{'_fenced' if fenced else '_revived'}: {NAMES[index]} had answered for generation {message.gen}"
    yield label, would_say_so and "reconciler" in rules, after


# --- operations/create.py


def _build_steps(state: State, index: int, host: Host, rules: Rules) -> Iterator[Step]:
    job = host.build
    gen = job.gen

    def to(at: str, changed: Host = host, what: str = job.what) -> State:
        return _put(state, index, changed._replace(build=job._replace(at=at, what=what) if at else IDLE))

    fenced = "revocation" in rules and gen <= host.fenced
    if job.at == "queued":
        if not is_locked(host, rules):
            yield "build: _attempt", True, _attempt(state, index, host, rules)
    elif job.at == "start_build":
        if fenced:
            yield "build: revoked before start_build", True, to("")
        else:
            yield "build: the command has its interfaces", True, to("creating")
            after, wanted = conductor.start_build(state, index, gen, rules)
            following = job._replace(at="creating" if wanted else "unwanted")
            yield f"build: start_build, wanted: {wanted}", True, at_host(after, index, build=following)
    elif job.at == "unwanted":
        yield "build: _remove_unwanted: revoke", True, to("", revoke(host, gen, rules))
    elif job.at == "creating":
        if fenced and "fence check at creation" in rules:
            yield "build: fenced", True, to("undo", what="")
        else:
            yield "build: mark_creating passed", True, to("define")
            yield from _failures(to)
    elif job.at == "define":
        yield "build: domain is defined", True, to("start domain", host._replace(domain=gen, power=OFF))
        yield from _failures(to)
    elif job.at == "start domain":
        running = host._replace(domain=gen, power=RUNNING) if host.domain == gen else host
        yield "build: domain runs", True, to("built", running)
        yield from _failed_spawns(to, host)
    elif job.at == "built":
        if fenced and "fence check at creation" in rules:
            yield "build: mark_built refused", True, to("undo", what="")
        else:
            yield (
                "build: mark_built",
                True,
                _report(to("report", host._replace(built=gen), "built"), index, gen),
            )
            yield from _failed_spawns(to, host)
    elif job.at == "refuse":
        if "fence before report" in rules:
            yield "build: revoke_failed_build", True, to("undo", revoke(host, gen, rules)._replace(built=0))
        else:
            yield "build: undone before it is revoked", True, to("undo")
    elif job.at == "undo":
        after = to("report" if job.what else "", remove(host))
        yield "build: undone", True, _report(after, index, gen, job.what) if job.what else after
    elif job.at == "report":
        yield from _reporting(state, index, host, job, to, rules)
    elif job.at == "report unwanted" and not is_locked(host, rules):
        if host.domain == gen:
            yield "build: _remove_unwanted: revoke", True, to("clear", revoke(host, gen, rules))
        else:
            yield "build: _remove_unwanted: nothing there", True, to("")
    elif job.at == "clear":
        yield "build: cleared", True, to("", remove(host))


def _failures(to) -> Iterator[Step]:
    yield "build: fails, another host may do better", False, to("refuse", what="rescheduled")
    yield "build: fails, no host would do better", False, to("refuse", what="aborted")


def _failed_spawns(to, host: Host) -> Iterator[Step]:
    for what in ("rescheduled", "aborted"):
        yield f"build: driver removes what it made, {what}", False, to("refuse", remove(host), what)


def _report(state: State, index: int, gen: int, outcome: str = "built") -> State:
    return send(state, Message("report", index, gen, 0, outcome))


def _attempt(state: State, index: int, host: Host, rules: Rules) -> State:
    """Take the lock, and decide by the fencing token store and the hypervisor."""
    job = host.build
    gen = job.gen

    def to(at: str, changed: Host = host, what: str = "") -> State:
        return _put(state, index, changed._replace(build=job._replace(at=at, what=what) if at else IDLE))

    if ("action order" in rules and job.id < host.last) or host.domain > gen:
        return to("")
    complete = is_complete(host, gen)
    fenced = "revocation" in rules and "fence check at order" in rules and gen <= host.fenced
    if fenced and not complete:
        return _report(to("report", remove(host), "rescheduled"), index, gen, "rescheduled")
    if complete:
        return _report(to("report", mark_built(host), "built"), index, gen)
    return to("start_build", remove(host) if host.domain else host)


def _reporting(state: State, index: int, host: Host, job: Job, to, rules: Rules) -> Iterator[Step]:
    if host.fenced > job.gen or host.last > job.id:
        yield "build: report was overtaken", True, to("")
        return
    after, accepted = conductor.finish_build(state, index, job.gen, job.what, rules)
    following = IDLE if accepted else job._replace(at="report unwanted")
    yield f"build: finish_build({job.what}), accepted: {accepted}", True, at_host(after, index, build=following)


# --- executor.py


def _admit(host: Host, message: Message, rules: Rules) -> Host:
    job = Job("locking", message.gen, message.id, message.what)
    touched = bool(host.scan.at)
    if "action order" in rules:
        if message.id < host.last:
            return host
        if message.id == host.last and host.result:
            return host._replace(acts=_with(host, job._replace(at="report")), touched=touched)
    if message.id != host.last:
        host = host._replace(last=message.id, result="")
    if message.what == "delete":
        host = revoke(host, message.gen, rules)
    return host._replace(acts=_with(host, job), touched=touched)


def _with(host: Host, job: Job, instead: Job | None = None) -> tuple[Job, ...]:
    return tuple(sorted([other for other in host.acts if other != instead] + ([job] if job.at else [])))


def _act_steps(state: State, index: int, host: Host, rules: Rules) -> Iterator[Step]:
    for job in host.acts:

        def to(at: str, changed: Host = host, job: Job = job) -> State:
            acts = _with(host, job._replace(at=at) if at else IDLE, instead=job)
            return _put(state, index, changed._replace(acts=acts))

        if job.at == "locking" and not is_locked(host, rules):
            if "action order" in rules and host.last != job.id:
                yield f"{job.what}: overtaken", True, to("")
            elif "action order" in rules and host.result:
                yield f"{job.what}: was done before", True, to("report")
            else:
                yield f"{job.what}: has the lock", True, to("act")
        elif job.at == "act":
            yield f"{job.what}: done and noted", True, to("report", carry_out(host, job))
        elif job.at == "report":
            result = host.result or "ok"
            after = conductor.finish_action(state, index, job.id, result, rules)
            yield f"{job.what}: finish_action({result})", True, at_host(after, index, acts=_with(host, IDLE, job))


def carry_out(host: Host, job: Job) -> Host:
    result = "ok"
    if job.what == "delete":
        host = remove(host)
    elif host.domain != job.gen:
        result = "error"
    else:
        host = host._replace(power=OFF if job.what == "stop" else RUNNING)
        if not is_revoked(host, job.gen):
            host = host._replace(built=job.gen)
    return host._replace(result=result) if host.last == job.id else host


# --- manager.py: fence_instance


def _fence_begins(host: Host, message: Message, rules: Rules) -> Host:
    if host.build.at and host.built != message.gen:
        host = revoke(host, message.gen, rules)
    return host._replace(fence=Job("fence lock", message.gen))


def _fence_steps(state: State, index: int, host: Host, rules: Rules) -> Iterator[Step]:
    job = host.fence
    if job.at == "fence lock" and not is_locked(host, rules):
        if is_complete(host, job.gen):
            after = _put(state, index, mark_built(host)._replace(fence=IDLE))
            yield "fence_instance: it runs", True, send(after, Message("answer", index, job.gen, 0, "runs"))
        else:
            changed = revoke(host, job.gen, rules)._replace(fence=job._replace(at="fence remove"))
            yield "fence_instance: revoked", True, _put(state, index, changed)
    elif job.at == "fence remove":
        changed = (remove(host) if host.domain <= job.gen else host)._replace(fence=IDLE)
        after = _put(state, index, changed)
        yield "fence_instance: confirmed", True, send(after, Message("answer", index, job.gen, 0, "fenced"))


# --- reconciler.py


def _scan_steps(state: State, index: int, host: Host, rules: Rules) -> Iterator[Step]:
    """Take a snapshot, call the conductor, receive its verdicts, and act on them.

    A daemon serves after its first scan. ``id`` of the job is the power state.
    """
    job = host.scan
    over = host._replace(scan=IDLE, touched=False, daemon="serving")
    if not job.at:
        if "domain reconciliation" not in rules or not host.domain:
            if host.daemon == "starting":
                yield "serves", True, _put(state, index, over)
            return
        given_up = is_revoked(host, host.domain)
        seen = Job("given up" if given_up else "ask", host.domain, host.power)
        busy = bool(host.build.at or host.acts)
        if not busy:
            yield "reconcile: looks at its domains", True, _put(state, index, host._replace(scan=seen))
    elif host.touched:
        yield "reconcile: left alone, a job came", True, _put(state, index, over)
    elif job.at == "ask":
        after, verdict = conductor.reconcile_domains(state, index, job.gen, job.id)
        changed = host._replace(scan=job._replace(at="apply")) if verdict == "destroy" else over
        yield f"reconcile: told {verdict or 'nothing'}", True, _put(after, index, changed)
    elif job.at in ("apply", "given up") and not is_locked(host, rules):
        if job.at == "apply" and host.domain != job.gen:
            yield "reconcile: something else is here", True, _put(state, index, over)
        else:
            changed = revoke(host, job.gen, rules)._replace(scan=job._replace(at="scan remove"))
            yield "reconcile: revokes", True, _put(state, index, changed)
    elif job.at == "scan remove":
        removed = remove(host)._replace(scan=IDLE, touched=False, daemon="serving")
        yield "reconcile: removed", True, _put(state, index, removed)
