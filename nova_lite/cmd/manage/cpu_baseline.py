"""``host cpu-baseline``: the largest processor that all hosts of an aggregate have."""

from __future__ import annotations

import argparse

import msgspec

from nova_lite.base import exceptions
from nova_lite.cmd.manage.app import App
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.hosts import aggregates, hosts
from nova_lite.hardware import baseline
from nova_lite.hardware.baseline import CPU_BASELINE
from nova_lite.objects import HOST_CPU, Aggregate, HostCpu

_APPLIED = (
    "New guests on hosts with [libvirt] cpu_mode = baseline get it. Guests that exist get it when they are recreated "
    "(hard reboot, resize, rebuild)."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--aggregate", required=True, metavar="A", help="id, uuid or name")
    parser.add_argument("--apply", action="store_true", help="give it to new guests of the aggregate's hosts")


def run(app: App, args: argparse.Namespace) -> None:
    """Carry out ``host cpu-baseline``: propose and explain a baseline, and store it with ``--apply``."""
    aggregate, known = app.db.read(_read, args.aggregate)
    found = baseline.find(known)
    app.show(
        ("Host", "Processor", "Gives Up", "Baseline"),
        [
            (name, cpu.definition.partition(" ")[0], " ".join(found.given_up[name]) or None, found.definition)
            for name, cpu in sorted(known.items())
        ],
    )
    app.say(f"The baseline has {len(found.features)} features, which all {len(known)} host(s) have.")
    for lacking, features in _limits(found).items():
        app.say(f"Without {', '.join(lacking)} it would also have {', '.join(features)}.")
    if args.apply:
        app.db.write(aggregates.set_metadata, app.conf, str(aggregate.id), {CPU_BASELINE: found.definition})
        app.say(f"It is the baseline of aggregate {aggregate.name}. {_APPLIED}")
    elif aggregate.metadata.get(CPU_BASELINE) not in (None, found.definition):
        app.say(f"Aggregate {aggregate.name} has another one: {aggregate.metadata[CPU_BASELINE]}")


def _limits(found: baseline.Baseline) -> dict[tuple[str, ...], list[str]]:
    """Return by sets of hosts the features that only these hosts lack."""
    limits: dict[tuple[str, ...], list[str]] = {}
    for feature, names in found.without.items():
        limits.setdefault(tuple(sorted(names)), []).append(feature)
    return limits


def _read(uow: UnitOfWork, reference: str) -> tuple[Aggregate, dict[str, HostCpu]]:
    """Return the aggregate, and the processors of its hosts by name."""
    aggregate = aggregates.get(uow, reference)
    if not aggregate.hosts:
        raise exceptions.InvalidInput(reason=f"aggregate {aggregate.name} has no hosts.")
    reported = {
        state.host: msgspec.convert(state.capabilities[HOST_CPU], HostCpu)
        for state in hosts.states(uow)
        if HOST_CPU in state.capabilities
    }
    known = {name: cpu for name, cpu in reported.items() if cpu.definition and cpu.features}
    silent = sorted(set(aggregate.hosts) - known.keys())
    if silent:
        raise exceptions.InvalidInput(
            reason=f"no processor is known of {', '.join(silent)}: their daemons have not reported any. Start them, or "
            "take them out of the aggregate."
        )
    return aggregate, {name: known[name] for name in aggregate.hosts}
