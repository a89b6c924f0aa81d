"""Fence methods of hosts: what the file of fencing says, and how a host is switched off for certain."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import yaml

from nova_lite.base import clock, exceptions, plugins
from nova_lite.base.timing import TIMING, ConductorTiming
from nova_lite.fence.agent import FenceAgent, Power, private_text

LOG = logging.getLogger(__name__)

NAMESPACE = "nova_lite.fence"


class Method(NamedTuple):
    """A way to switch a host off. ``name``: its number and the name of its agent."""

    name: str
    agent: FenceAgent


class Check(NamedTuple):
    """Result of a test of a method. ``error``: why it does not work, or ""."""

    name: str
    power: str
    error: str


def load(path: str | None) -> dict[str, list[Method]]:
    """Read the fence methods of all hosts from the file, in order. Raises `ConfigurationError`."""
    if not path:
        return {}
    text = private_text(path)
    try:
        content = yaml.safe_load(text) or {}
    except (ValueError, yaml.YAMLError) as error:
        raise exceptions.ConfigurationError(reason=f"{path} is no YAML: {type(error).__name__}") from error
    if not isinstance(content, dict):
        raise exceptions.ConfigurationError(reason=f"{path} must name hosts, each with a list of methods.")
    return {str(host): _methods(path, str(host), items) for host, items in content.items()}


def _methods(path: str, host: str, items: Any) -> list[Method]:
    if not isinstance(items, list) or not all(isinstance(item, dict) and "agent" in item for item in items):
        raise exceptions.ConfigurationError(reason=f"{path}: {host} needs a list of methods, each with an agent.")
    methods = []
    for number, item in enumerate(items, 1):
        name, settings = str(item["agent"]), {key: value for key, value in item.items() if key != "agent"}
        (kind,) = plugins.load(NAMESPACE, [name], f"{path}, host {host}")
        try:
            methods.append(Method(f"{number}. {name}", kind(settings)))
        except exceptions.ConfigurationError as error:
            reason = error.kwargs.get("reason", error.message)
            raise exceptions.ConfigurationError(reason=f"{path}, host {host}: {reason}") from error
    return methods


def test(methods: list[Method], timing: ConductorTiming = TIMING.conductor) -> list[Check]:
    """Read the power by each method. Nothing is switched."""
    return [_test(method, timing) for method in methods]


def _test(method: Method, timing: ConductorTiming) -> Check:
    try:
        return Check(method.name, method.agent.power(timing.fence_call), "")
    except exceptions.NovaLiteException as error:
        return Check(method.name, "unknown", error.message)
    except Exception as error:  # An agent of another package.
        return Check(method.name, "unknown", repr(error))


def switch_off(
    host: str,
    methods: list[Method],
    timing: ConductorTiming = TIMING.conductor,
    is_lost: Callable[[], bool] = lambda: True,
) -> str:
    """Switch a host off by the first method that can, and return the method's name once its power is off.

    The success of a command is no proof: the power is read until it is off. ``is_lost``: asked before each method after
    the first, because the host may have returned while that one failed. Raises `FenceFailed` with the reason of each
    method.
    """
    reasons: list[str] = []
    for method in methods:
        if reasons and not is_lost():
            raise exceptions.FenceFailed(reason="; ".join([*reasons, "it is not lost any more"]))
        try:
            if _is_off(method, timing):
                return method.name
            reasons.append(f"{method.name}: the host is on, although it was switched off")
        except exceptions.NovaLiteException as error:
            reasons.append(f"{method.name}: {error.message}")
        except Exception as error:  # An agent of another package, whose defect keeps no other method back.
            reasons.append(f"{method.name}: {error!r}")
        LOG.warning("Host %s cannot be switched off by %s", host, reasons[-1])
    raise exceptions.FenceFailed(reason="; ".join(reasons) or f"host {host} has no fence method")


def _is_off(method: Method, timing: ConductorTiming) -> bool:
    deadline = clock.monotonic() + timing.fence_wait
    if method.agent.power(timing.fence_call) is Power.OFF:
        return True
    method.agent.off(timing.fence_call)
    while method.agent.power(timing.fence_call) is not Power.OFF:
        if clock.monotonic() >= deadline:
            return False
        clock.sleep(timing.fence_poll)
    return True
