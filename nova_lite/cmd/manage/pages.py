"""Generators of the reference pages on configuration, commands, errors, and messages."""

from __future__ import annotations

import argparse
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from oslo_config import cfg

from nova_lite import operations, rpc
from nova_lite.base import exceptions, markdown
from nova_lite.rpc.contract import Method
from nova_lite.rpc.permissions import AccessRule
from nova_lite.rpcapi.compute import ComputeRPC
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.rpcapi.scheduler import SchedulerRPC

_WIDTH = 118

_CONFIGURATION = """# Configuration

This page lists all options of all daemons. `nova-lite-manage config reference` generates it from the options'
definitions. `etc/nova-lite/nova-lite.conf` is the same list as a sample file. Options of oslo.messaging, oslo.db,
oslo.log and oslo.policy are described by those libraries.

A daemon reads `/etc/nova-lite/nova-lite.conf` and its own file, for example `conductor.conf`. Later files win. A daemon
ends with one line and exit status 1 if an option has a value that is not of its type. Restart a daemon after a change.
`nova-lite-manage config check` checks the files without a start.

## Options that most clouds set

| Purpose | Options |
|---|---|
| broker, database, keys | `[DEFAULT] transport_url`, `[database] connection`, `[rpc] keys_directory` |
| name and address of a host | `[DEFAULT] host`, `[DEFAULT] my_ip`, `[libvirt] live_migration_inbound_addr` |
| APIs and users | `[api] enabled_apis`, `[api] listen`, `[api] workers`, `[api] auth_strategy` |
| backends | `[image] backend`, `[volume] backend`, `[network] backend` |
| room on hosts | `[DEFAULT] cpu_allocation_ratio`, `[DEFAULT] reserved_host_memory_mb`, `[compute] cpu_dedicated_set` |
| consoles | `[vnc] server_listen`, `[vnc] novncproxy_base_url` |
| networks over hosts | `[vxlan] local_ip`, `[network] metadata_service` |
| placement | `[scheduler] enabled_filters`, `[scheduler] weight_classes` |

Leave leases, deadlines, and intervals as they are, unless a page of this documentation says otherwise. Shorter ones
mean earlier recovery, and more messages and statements while nothing is wrong.
"""
_COMMANDS = """# Commands

This page lists all commands of `nova-lite-manage`. `nova-lite-manage commands` generates it from the command line
parser. `nova-lite-manage` works on the database, or sends requests to the daemons. Run it as root on a machine that
has `conductor.conf` and `manage.conf`.

Each command takes `--config-file FILE` (may be repeated) and `--format table|json`. The exit status is 0 for success, 1
for an error or a finding, and 2 for wrong usage. An error is one line on standard error.
"""
_ERRORS = """# Errors

This page lists all errors of nova_lite with their HTTP status. `nova-lite-manage api errors` generates it from
`nova_lite.base.exceptions`. The compute API returns `{"NAME": {"code": STATUS, "message": "TEXT"}}`, where NAME
depends on the status as in Nova. `…` stands for a value.

A status of 500 marks an error that only daemons exchange. Users see its text as the fault of a server or the message
of an event. [API behaviour](api-behaviour.md#errors) describes how clients handle errors.
"""


_MESSAGES = """# Messages

This page lists all messages between daemons. `nova-lite-manage api messages` generates it from the services'
protocols (`nova_lite/rpcapi`) and the operations. The docstring of each method in its protocol describes it.
[Architecture](../explanation/architecture.md#messages) explains kinds, versions and permissions.

- `kind`: a *call* waits for the reply, a *cast* does not, a *fanout* goes to every server of the topic.
- `since`: the minor version of the service that introduced the method.
- `from`: the roles that may send it. `own host`: a compute host sends it in its own name only.
"""


def configuration(listed: Iterable[tuple[str, Sequence[cfg.Opt]]]) -> str:
    """Return reference/configuration.md for groups and their options."""
    groups: dict[str, dict[str, cfg.Opt]] = {}
    for group, opts in listed:
        groups.setdefault(group, {}).update({opt.name: opt for opt in opts})
    parts = [_CONFIGURATION]
    for group in sorted(groups, key=lambda name: (name != "DEFAULT", name)):
        options = "\n".join(_option(opt) for _, opt in sorted(groups[group].items()))
        parts.append(f"## [{group}]\n\n{options}\n")
    return "\n".join(parts)


def _option(opt: cfg.Opt) -> str:
    facts = [_type(opt), f"default {_default(opt)}"]
    if opt.deprecated_opts:
        facts.append("formerly " + ", ".join(_former(opt, former) for former in opt.deprecated_opts))
    # A placeholder such as <state_path> is no HTML.
    text = re.sub(r"<(\w+)>", r"`<\1>`", " ".join((opt.help or "").split()))
    return markdown.item(f"**`{opt.dest}`** ({'; '.join(facts)}): {text}".rstrip(": "))


def _former(opt: cfg.Opt, former: cfg.DeprecatedOpt) -> str:
    """Return the former name of an option, with its group if that was another one."""
    name = former.name or opt.dest
    return f"`[{former.group}] {name}`" if former.group else f"`{name}`"


def _type(opt: cfg.Opt) -> str:
    kind = opt.type
    name = type(kind).__name__.lower()
    if choices := getattr(kind, "choices", None):
        return "one of " + ", ".join(f"`{choice}`" for choice in choices if choice)
    minimum, maximum = getattr(kind, "min", None), getattr(kind, "max", None)
    if name == "port" or (minimum is None and maximum is None):
        return {"hostaddress": "address", "list": "list", "multiopt": "may be repeated"}.get(name, name)
    if maximum is None:
        return f"{name}, at least {minimum}"
    return f"{name}, at most {maximum}" if minimum is None else f"{name}, {minimum} to {maximum}"


def _default(opt: cfg.Opt) -> str:
    value = opt.sample_default if opt.sample_default is not None else opt.default
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, list):
        return ", ".join(f"`{entry}`" for entry in value) or "empty"
    if isinstance(value, dict):
        return ", ".join(f"`{key}:{entry}`" for key, entry in value.items()) or "empty"
    return f"`{value}`"


def commands(parser: argparse.ArgumentParser) -> str:
    """Return reference/cli.md for the whole command line."""
    parts = [_COMMANDS]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, noun in action.choices.items():
                parts.append(f"## {name}\n\n{markdown.paragraph(noun.description or '')}\n")
                parts += _verbs(noun)
    return "\n".join(parts)


def _verbs(noun: argparse.ArgumentParser) -> Iterator[str]:
    """Yield a section for each verb; a command without verbs is one."""
    nested = [action for action in noun._actions if isinstance(action, argparse._SubParsersAction)]
    if not nested:
        yield _arguments(noun)
    for action in nested:
        for verb in action.choices.values():
            description = markdown.paragraph(verb.description or "")
            yield f"### {verb.prog.partition(' ')[2]}\n\n{description}\n\n{_arguments(verb)}"


def _arguments(verb: argparse.ArgumentParser) -> str:
    common = {"help", "config_file", "format"}
    own = [action for action in verb._actions if action.dest not in common]
    usage = " ".join([verb.prog, *(_usage(action) for action in own)])
    wrapped = textwrap.fill(usage, _WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    items = "".join(f"{markdown.item(f'`{_name(action)}`: {_help(action)}')}\n" for action in own if action.help)
    return f"```\n{wrapped}\n```\n" + (f"\n{items}" if items else "")


def _usage(action: argparse.Action) -> str:
    text = _name(action)
    if not action.option_strings:
        return {"?": f"[{text}]", "*": f"[{text}...]", "+": f"{text}..."}.get(str(action.nargs), text)
    return text if action.required else f"[{text}]"


def _name(action: argparse.Action) -> str:
    value = action.metavar or (f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper())
    if not action.option_strings:
        return str(value)
    return action.option_strings[-1] if action.nargs == 0 else f"{action.option_strings[-1]} {value}"


def _help(action: argparse.Action) -> str:
    text = " ".join((action.help or "").split())
    return text % {"default": action.default} if "%(" in text else text.replace("%%", "%")


def errors() -> str:
    """Return reference/errors.md for all error classes."""
    by_status: dict[int, list[type[exceptions.NovaLiteException]]] = {}
    for _, kind in sorted(inspect.getmembers(exceptions, inspect.isclass)):
        if issubclass(kind, exceptions.NovaLiteException):
            by_status.setdefault(kind.code, []).append(kind)
    parts = [_ERRORS]
    for status, kinds in sorted(by_status.items()):
        rows = "\n".join(markdown.item(f"**`{kind.__name__}`**: {_text(kind)}") for kind in kinds)
        parts.append(f"## {status}\n\n{rows}\n")
    return "\n".join(parts)


def _text(kind: type[exceptions.NovaLiteException]) -> str:
    # A replaced value keeps a mark only.
    return re.sub(r"%\(\w+\)\d*[a-z]", "…", kind.msg_fmt).replace("%%", "%").replace("<", "&lt;")


def messages() -> str:
    """Return reference/messages.md for the protocols of all services, and the commands of all operations."""
    parts = [_MESSAGES]
    for protocol in (ConductorRPC, SchedulerRPC, ComputeRPC):
        contract = rpc.contract_of(protocol)
        rows = [_message(method, contract.access) for _, method in sorted(contract.methods.items())]
        parts.append(_messages_to(f"To the {contract.topic}, version {contract.version}", rows))
    names: dict[str, set[str]] = {}
    for definition in operations.OPERATIONS.values():
        for form in (definition, *(variant for _, _, variant in definition.variants)):
            for step in form.all_steps():
                if isinstance(step, operations.HostStep):
                    names.setdefault(step.method, set()).add(form.kind)
    steps = {step.method: step for step in operations.command_methods().values()}
    rows = [
        f"| `{method}` | cast | {step.since} | {', '.join(sorted(names[method]))} |"
        for method, step in sorted(steps.items())
    ]
    head = "| method | kind | since | operations |\n|---|---|---|---|\n"
    text = "A conductor or the API sends the command of a step to a compute host.\n\n"
    parts.append(f"## Commands to compute hosts\n\n{text}{head}" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _messages_to(title: str, rows: Iterable[str]) -> str:
    return f"## {title}\n\n| method | kind | since | from |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


def _message(method: Method, access: Mapping[str, AccessRule] | None) -> str:
    rule = None if access is None else access[method.name]
    senders = "all" if rule is None else ", ".join(sorted(rule.roles))
    own = " (own host)" if rule is not None and rule.own else ""
    name = _with_wire_name(method.name, method.wire_name)
    return f"| {name} | {method.kind.value} | {method.since} | {senders}{own} |"


def _with_wire_name(name: str, wire_name: str) -> str:
    return f"`{name}`" + (f" (on the wire: `{wire_name}`)" if wire_name != name else "")
