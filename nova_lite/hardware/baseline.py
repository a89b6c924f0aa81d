"""Baseline of several hosts: the largest processor that all of them have.

Each host has all of its features. Its model is that of the host that differs least from these features, so all
hosts know the model. Guests with it can move between the hosts in any direction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from nova_lite.base import exceptions
from nova_lite.hardware.continuing import names
from nova_lite.objects.cpu import HostCpu

#: Key of an aggregate's metadata: the baseline of its hosts, as a `HostCpu.definition`.
CPU_BASELINE = "cpu_baseline"

_DEFINITION = re.compile(r"[A-Za-z0-9][\w.-]*( [+-][A-Za-z0-9][\w.-]*)*", re.ASCII)


class Baseline(NamedTuple):
    """A baseline. ``definition``: as in `HostCpu`. ``given_up``: by host, the features that it has beyond it.
    ``without``: by feature, the hosts that lack it although another one has it."""

    definition: str
    features: frozenset[str]
    given_up: dict[str, list[str]]
    without: dict[str, list[str]]


def is_definition(text: str) -> bool:
    return _DEFINITION.fullmatch(text) is not None


def find(hosts: Mapping[str, HostCpu]) -> Baseline:
    """Return the baseline of hosts, by name. Raises `InvalidInput` if no processor runs on all of them."""
    for field, what in (("virt_type", "type of guests"), ("vendor", "vendor of processors")):
        groups: dict[str, list[str]] = {}
        for name, host in hosts.items():
            groups.setdefault(getattr(host, field), []).append(name)
        if len(groups) != 1:
            shown = "; ".join(f"{value or 'unknown'}: {', '.join(members)}" for value, members in groups.items())
            raise exceptions.InvalidInput(
                reason=f"the hosts have no {what} in common ({shown}). Make an aggregate of the hosts of each."
            )
    own = {name: names(host.features) for name, host in hosts.items()}
    common = frozenset.intersection(*own.values())
    definition = min(
        (_with_features(host, own[name], common) for name, host in hosts.items()),
        key=lambda text: (text.count(" "), text),
    )
    every = frozenset.union(*own.values())
    return Baseline(
        definition,
        common,
        given_up={name: sorted(features - common) for name, features in own.items()},
        without={feature: [name for name in own if feature not in own[name]] for feature in sorted(every - common)},
    )


def _with_features(host: HostCpu, features: frozenset[str], wanted: frozenset[str]) -> str:
    """Return the definition of a processor of the host's model that has exactly these features."""
    model, *differences = host.definition.split()
    added = {name[1:] for name in differences if name.startswith("+")}
    removed = {name[1:] for name in differences if name.startswith("-")}
    of_model = (features - added) | removed
    plus = (f"+{name}" for name in sorted(wanted - of_model))
    minus = (f"-{name}" for name in sorted(of_model - wanted))
    return " ".join((model, *plus, *minus))
