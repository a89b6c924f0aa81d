"""The model's view of each operation, compared with `nova_lite.operations` and with the model's behaviour.

`MODEL` is compared with the definitions (`of_definition`): equal steps, in the same order, in the same host roles, with
the same undo. The transitions that it implies (`ways`) are compared with the transitions in every state of the model
(`seen`). So table, model, and definitions cannot contradict each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from nova_lite import operations
from tests.model.checker import Model, Step, explore

#: A transition: a step and the next one. "" stands for a closed action.
Way = tuple[str, str]


@dataclass(frozen=True)
class ModelStep:
    """A step of the model.

    ``what``: its effect and host role. ``undo``: its compensation. ``offline_step``: its name while its host is away.
    ``retry_forever``: only success ends it. ``may_complete_late``: the undo may find the step done. ``again``: the step
    that follows a failure that another host may avoid.
    """

    name: str
    what: str = ""
    undo: tuple[ModelStep, ...] = ()
    offline_step: str = ""
    retry_forever: bool = False
    may_complete_late: bool = False
    again: str = ""

    @property
    def acts(self) -> bool:
        """True if it is a step of the action in the model.

        A step without an effect is part of the transaction before it.
        """
        return not self.what.startswith(("network", "release"))


_RELEASE = ModelStep("release", f"release at {operations.HostRole.ALL}")
_BUILD = ModelStep(
    "build",
    "build_and_run_instance at current",
    undo=(ModelStep("compensate", "fence_instance at current", retry_forever=True, may_complete_late=True),),
    again="schedule",
)


_RETURN = ModelStep("return", "finish_revert_resize at source", retry_forever=True)
_MOVE = (
    ModelStep("schedule", "schedule", undo=(ModelStep("release", "release at destination"),)),
    ModelStep("leave", "resize_instance at source", undo=(_RETURN,)),
    ModelStep(
        "arrive",
        "finish_resize at destination",
        undo=(ModelStep("drop", "drop_resize at destination", retry_forever=True, may_complete_late=True),),
    ),
)


def _perform(method: str, **more: Any) -> ModelStep:
    return ModelStep("perform", f"{method} at {more.pop('at', 'current')}", **more)


_LIVE = (
    ModelStep("schedule", "schedule", undo=(ModelStep("release", "release at destination"),)),
    ModelStep("check", "check_can_live_migrate_source at source"),
    ModelStep(
        "prepare",
        "pre_live_migration at destination",
        undo=(ModelStep("drop", "rollback_live_migration_at_destination at destination", retry_forever=True),),
    ),
    ModelStep(
        "hand_over",
        "live_migration at source",
        undo=(
            ModelStep("roll_back", "rollback_live_migration at source", retry_forever=True, may_complete_late=True),
            ModelStep("find", "find_live_migrated_instance at destination", retry_forever=True, may_complete_late=True),
        ),
    ),
    ModelStep("settle", "post_live_migration_at_destination at destination", retry_forever=True),
    ModelStep("clear", "post_live_migration at source", retry_forever=True),
    ModelStep("release_source", "release at source"),
)

MODEL: dict[str, tuple[ModelStep, ...]] = {
    "create": (
        ModelStep("schedule", "schedule", undo=(ModelStep("deallocate", "network"), _RELEASE)),
        _BUILD,
    ),
    "delete": (
        _perform("terminate_instance", at=operations.HostRole.ALL, offline_step="cleanup", retry_forever=True),
        ModelStep("deallocate", "network"),
        _RELEASE,
    ),
    "stop": (_perform("stop_instance"),),
    "start": (_perform("start_instance"),),
    "rebuild": (replace(_BUILD, again=""),),
    "evacuate": (ModelStep("schedule", "schedule", undo=(_RELEASE,)), _BUILD),
    "resize": _MOVE,
    "migrate": _MOVE,
    "live-migration": _LIVE,
    "confirmResize": (
        ModelStep("perform", "confirm_resize at source", retry_forever=True),
        ModelStep("release", "release at source"),
    ),
    "revertResize": (
        ModelStep("drop", "revert_resize at destination", retry_forever=True),
        ModelStep("release", "release at destination"),
        _RETURN,
    ),
}

#: docs/contributing/protocol-model.md, "What it does not cover".
NOT_MODELLED = (
    "shelve",
    "shelveOffload",
    "attach_volume",
    "swap_volume",
    "attach_interface",
    "detach_interface",
    "attach_share",
    "create_point",
    "revert_to_point",
    "clone",
    "volume_snapshot_create",
    "volume_snapshot_delete",
)


def of_definition(definition: operations.Operation) -> tuple[ModelStep, ...]:
    """Return the steps of a definition as the model sees them.

    Optional steps are left out, because a requested one is like an operation of its own. So are calls to other
    services, which hold nothing of hosts.
    """
    found: list[ModelStep] = []
    for step in definition.steps:
        if step.only_if is None and not isinstance(step, operations.ServiceStep):
            found.append(_of_step(step, found[-1] if found else None))
    return tuple(found)


def _of_step(step: operations.Step, before: ModelStep | None = None) -> ModelStep:
    undo = tuple(_of_step(undo) for undo in step.undo if not isinstance(undo, operations.ServiceStep))
    if isinstance(step, operations.ScheduleStep):
        return ModelStep(step.name, "schedule", undo)
    if isinstance(step, operations.HostStep):
        builds = before is not None and before.what.startswith("schedule") and step.name == operations.BUILD
        again = before.name if before is not None and builds else ""
        what = f"{step.method} at {step.at}"
        return ModelStep(
            step.name, what, undo, step.offline_step or "", step.retry_forever, step.may_complete_late, again
        )
    if isinstance(step, operations.ReleaseStep):
        return ModelStep(step.name, f"release at {step.at}", undo)
    return ModelStep(step.name, "network", undo)


def is_like_stop(definition: operations.Operation) -> bool:
    """Check whether the operation is one command to the instance's host without undo, like stop.

    Then everything proven for stop holds. An operation without any command is done when it is accepted.
    """
    if not definition.steps:
        return True
    (first, *more) = of_definition(definition)
    return not more and first == ModelStep("perform", first.what) and first.what.endswith(" at current")


def is_like_a_modelled_one(definition: operations.Operation) -> bool:
    """Check whether the operation is like a modelled one.

    It is like stop, or a build on another host of a server that holds nothing.
    """
    return is_like_stop(definition) or of_definition(definition) == MODEL["evacuate"]


def ways(steps: Iterable[ModelStep], end: str = "") -> set[Way]:
    """Return all transitions from step to step.

    A step is done, or given up (everything begun is undone, newest first), or found to be done after all. ``end``: the
    state after the last step.
    """
    acting = [step for step in steps if step.acts]
    found: set[Way] = set()
    older: list[str] = []
    for index, step in enumerate(acting):
        done = acting[index + 1].name if index + 1 < len(acting) else end
        undo = [item for item in step.undo if item.acts]
        back = [*(item.name for item in undo), *older, ""]
        found |= {(step.name, done)}
        if not step.retry_forever:
            found |= set(zip([step.name, *back], back, strict=False))
        found |= {(item.name, done) for item in undo if item.may_complete_late}
        if step.again:
            found.add((step.name, step.again))
        if step.offline_step:
            found |= {(step.name, step.offline_step), (step.offline_step, "")}
        older = [*(item.name for item in undo), *older]
    return {(before, after) for before, after in found if before}


class Watched:
    """A model that records the transitions of its action.

    ``step``: returns the operation and step of a state, or None without one. Related states have the same operation.
    """

    def __init__(self, model: Model, step: Callable[[Any], tuple[Any, str] | None]) -> None:
        self._model = model
        self._step = step
        self.seen: set[tuple[Any, Way]] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def steps(self, state: Any) -> Iterable[Step]:
        before = self._step(state)
        for label, progress, after in self._model.steps(state):
            now = self._step(after)
            if before and now and before[0] == now[0] and before[1] and before[1] != now[1]:
                self.seen.add((before[0], (before[1], now[1])))
            yield label, progress, after


def seen(model: Model, step: Callable[[Any], tuple[Any, str] | None]) -> dict[Any, set[Way]]:
    """Return every transition in any state of the model, by operation."""
    watched = Watched(model, step)
    result = explore(watched)
    assert result.holds, str(result)
    found: dict[Any, set[Way]] = {}
    for operation, way in watched.seen:
        found.setdefault(operation, set()).add(way)
    return found
