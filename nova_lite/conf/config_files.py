"""Configuration files, compared with the options that exist: unknown options, and secrets that others can read.

The files are parsed as oslo.config parses them. Nothing is loaded into the process's own configuration. As a program,
``python -m nova_lite.conf.config_files FILE...`` prints the sentences of `report` as JSON. Listing all options loads
libraries that no daemon should keep in its memory, so daemons run it as a child.
"""

from __future__ import annotations

import difflib
import json
import os
import stat
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from typing import NamedTuple

from oslo_config import cfg, iniparser

from nova_lite.conf import pci

#: Entry points that list options, of this project, its libraries and its plug-ins.
_NAMESPACE = "oslo.config.opts"

#: Entry points of the libraries whose options daemons read.
_LIBRARIES = (
    "keystonemiddleware.auth_token",
    "oslo.concurrency",
    "oslo.log",
    "oslo.messaging",
    "oslo.middleware.cors",
    "oslo.middleware.http_proxy_to_wsgi",
    "oslo.middleware.sizelimit",
    "oslo.policy",
    "oslo.reports",
)

#: Options that name plug-ins by group and name, with the namespace of the plug-ins' entry points.
PLUGINS = {
    ("DEFAULT", "compute_driver"): "nova_lite.virt.drivers",
    ("image", "backend"): "nova_lite.image.backends",
    ("network", "backend"): "nova_lite.network.backends",
    ("scheduler", "enabled_filters"): "nova_lite.scheduler.filters",
    ("scheduler", "weight_classes"): "nova_lite.scheduler.weights",
}

#: Names that keystoneauth reads in a section for another service, besides those of its plug-in.
_SECTION_OPTIONS = ("auth_type", "auth_plugin", "auth_section")


class Setting(NamedTuple):
    """A line of a configuration file."""

    path: str
    group: str
    name: str


class Known:
    """The options that daemons understand, by group, with their former names."""

    def __init__(self, listed: Iterable[tuple[str, Iterable[cfg.Opt]]]) -> None:
        self._names: dict[str, dict[str, cfg.Opt]] = defaultdict(dict)
        for group, opts in listed:
            for opt in opts:
                self._add(group, opt)

    def _add(self, group: str, opt: cfg.Opt) -> None:
        self._names[group].update({opt.name: opt, opt.dest: opt})
        for former in opt.deprecated_opts:
            name = former.name or opt.name
            self._names[former.group or group].update({name: opt, name.replace("-", "_"): opt})

    def add(self, group: str, opts: Iterable[cfg.Opt]) -> None:
        for opt in opts:
            self._add(group, opt)

    def groups(self) -> list[str]:
        return sorted(self._names)

    def names(self, group: str) -> list[str]:
        return sorted(self._names.get(group, ()))

    def option(self, setting: Setting) -> cfg.Opt | None:
        return self._names.get(setting.group, {}).get(setting.name)


Sections = Mapping[str, Mapping[str, list[str]]]
Check = Callable[[str, Sections, Known], Iterator[str]]


def known_options() -> Known:
    """List the options of this project, of its libraries, and of installed plug-ins."""
    listed = []
    with warnings.catch_warnings(action="ignore"):
        for entry in metadata.entry_points(group=_NAMESPACE):
            if entry.name in _LIBRARIES or (entry.dist is not None and _is_ours(entry.dist)):
                listed += [(_group_name(group), opts) for group, opts in entry.load()()]
    return Known(listed)


def _is_ours(distribution: metadata.Distribution) -> bool:
    """Check whether a distribution is this project or a plug-in of it."""
    return any(entry.group.startswith("nova_lite.") for entry in distribution.entry_points)


def _group_name(group: object) -> str:
    return "DEFAULT" if group is None else str(getattr(group, "name", group))


def read(path: str) -> dict[str, dict[str, list[str]]]:
    """Return the values of a file by group and name. Raises `cfg.ConfigFileParseError` and `OSError`.

    The message of an error has nothing of the file's content, which may be a secret.
    """
    with open(path, encoding="utf-8"):
        pass  # oslo.config's parser does not name the file that it cannot open.
    sections: dict[str, dict[str, list[str]]] = {}
    try:
        cfg.ConfigParser(path, sections).parse()
    except iniparser.ParseError as error:
        raise cfg.ConfigFileParseError(path, f"line {error.lineno}: {error.msg}") from None
    except UnicodeDecodeError:
        raise cfg.ConfigFileParseError(path, "it is not text in UTF-8") from None
    return sections


def examine(paths: Iterable[str], checks: Iterable[Check]) -> Iterator[str]:
    """Return the results of checks of files, and a sentence for each file that cannot be read."""
    known = known_options()
    for path in paths:
        try:
            sections = read(path)
        except OSError as error:
            yield f"{path}: {error.strerror}."
        except cfg.ConfigFileParseError as error:
            yield f"{path}: {error.msg}."
        else:
            for check in checks:
                yield from check(path, sections, known)


def report(paths: Iterable[str]) -> Iterator[str]:
    """Return a sentence for each problem of the files of an API daemon. No sentence has a value of an option."""
    return examine(paths, (unknown, renamed, invalid, exposed))


def renamed(path: str, sections: Sections, known: Known) -> Iterator[str]:
    """Return a sentence for each option that has its former name, or that goes with a later version."""
    for group, values in sections.items():
        for name in values:
            option = known.option(Setting(path, group, name))
            if option is None:
                continue
            if name not in (option.name, option.dest):
                yield f"{path}: [{group}] {name} is called {option.name} now."
            elif option.deprecated_for_removal:
                reason = option.deprecated_reason or "remove it"
                yield f"{path}: [{group}] {name} has no effect any more, or soon: {reason}"


def invalid(path: str, sections: Sections, known: Known) -> Iterator[str]:
    """Return a sentence, without the value, for each option with a value that it cannot have."""
    for group, values in sections.items():
        for name, found in values.items():
            option = known.option(Setting(path, group, name))
            if option is None:
                continue
            try:
                fits = _fits(group, option, found if option.multi else found[-1:])
            except ValueError:
                fits = False
            if not fits:
                yield f"{path}: [{group}] {name} has a value that it cannot have{_choices(group, option)}."


def _fits(group: str, option: cfg.Opt, found: list[str]) -> bool:
    """Check the values of an option, except references to others. Raises `ValueError` for a wrong type."""
    values = [option.type(value) for value in found if "$" not in value]
    plugins = _plugins(group, option)
    if plugins is None:
        return True
    return all(name in plugins for value in values for name in (value if isinstance(value, list) else [value]))


def _plugins(group: str, option: cfg.Opt) -> list[str] | None:
    """Return the plug-ins that an option can name. None: it names none."""
    namespace = PLUGINS.get((group, option.name))
    return None if namespace is None else sorted(entry.name for entry in metadata.entry_points(group=namespace))


def _choices(group: str, option: cfg.Opt) -> str:
    choices = _plugins(group, option) or [str(choice) for choice in getattr(option.type, "choices", None) or ()]
    return f"; there are {', '.join(choices)}" if choices else ""


def unknown(path: str, sections: Sections, known: Known) -> Iterator[str]:
    """Return a sentence for each group and option that no daemon has."""
    _add_plugins(sections, known)
    for group in sections:
        if group.startswith(pci.MDEV_GROUP):
            known.add(group, pci.MDEV_OPTS)
    for group, values in sections.items():
        if not known.names(group):
            yield f"{path}: there is no group [{group}]{_did_you_mean(group, known.groups())}"
            continue
        for name in values:
            if known.option(Setting(path, group, name)) is None:
                yield f"{path}: [{group}] has no option {name}{_did_you_mean(name, known.names(group))}"


def _add_plugins(sections: Sections, known: Known) -> None:
    """Add the options of the authentication plug-ins that sections name. keystoneauth is loaded only for such ones."""
    for group, values in sections.items():
        plugin = (values.get("auth_type") or values.get("auth_plugin") or [""])[-1]
        section = (values.get("auth_section") or [group])[-1]
        if not plugin and section == group:
            continue
        from keystoneauth1 import loading
        from keystoneauth1.exceptions import NoMatchingPlugin

        known.add(group, [cfg.StrOpt(name) for name in _SECTION_OPTIONS])
        known.add(section, [cfg.StrOpt(name) for name in _SECTION_OPTIONS])
        try:
            known.add(section, loading.get_auth_plugin_conf_options(plugin or "password"))
        except NoMatchingPlugin:
            continue  # The check of the daemon that reads the section names the plug-in.


def _did_you_mean(name: str, others: list[str]) -> str:
    """Return the end of a sentence on an unknown name."""
    near = difflib.get_close_matches(name, others, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else "."


def exposed(path: str, sections: Sections, known: Known) -> Iterator[str]:
    """Return a sentence if every user of the machine can read a file with a secret."""
    if not stat.S_IMODE(os.stat(path).st_mode) & stat.S_IROTH:
        return
    secrets = [
        f"[{group}] {name}"
        for group, values in sections.items()
        for name, found in values.items()
        if (option := known.option(Setting(path, group, name))) is not None and option.secret and any(found)
    ]
    if secrets:
        yield f"{path}: every user of this machine can read {', '.join(secrets)}; run chmod o-rwx {path}."


if __name__ == "__main__":
    print(json.dumps(list(report(sys.argv[1:]))))
