"""Programs, packages, files and units of the machine. Their users validate every argument before."""

from __future__ import annotations

import configparser
import os
import pwd
import shutil
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from nova_lite.base import exceptions, files
from nova_lite.base.disk_room import free_bytes
from nova_lite.cmd.manage import programs

#: Files of the installed package: units, users, directories, and the paste file.
FILES = Path(__file__).parent / "etc"

CONFIGURATION = Path("/etc/nova-lite")
UNITS = Path("/etc/systemd/system")
#: Directory of this installation's programs.
PROGRAMS = Path(sys.executable).parent
#: Settings of a unit whose program needs this machine's address, which may come late when the machine starts. systemd
#: starts the program again until it succeeds.
WAITS_FOR_ADDRESS = """[Unit]
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0
"""
#: Files of Debian packages, which come before those of a set-up (docs/adr/0022-packages.md).
PACKAGED = Path("/usr/lib")

#: Options of a configuration file, by section.
Sections = dict[str, dict[str, str]]
_HEADER = "# Written by nova-lite-setup. It never changes this file again."

#: Seconds that a package manager, and any other program, may take.
APT_SECONDS, _SECONDS = 1800, 300


def run(
    *command: str,
    given: str = "",
    user: str | None = None,
    seconds: float = _SECONDS,
    accepted: Collection[int] = (0,),
) -> str:
    """Run a program with ``given`` as its input, and return its output. ``accepted``: exit status of a success.

    Raises `ConfigurationError` with the last line of its errors.
    """
    extra: dict[str, Any] = {}
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    if user is not None:
        user_id, group_id = ids(user)
        extra = {"user": user_id, "group": group_id, "extra_groups": os.getgrouplist(user, group_id)}
        environment["HOME"] = pwd.getpwnam(user).pw_dir
    return programs.run(*command, given=given, seconds=seconds, accepted=accepted, env=environment, cwd="/", **extra)


def succeeds(*command: str) -> bool:
    """Check whether a program ends with status 0."""
    try:
        run(*command)
    except exceptions.ConfigurationError:
        return False
    return True


def manage(*arguments: str, given: str = "", user: str | None = None) -> str:
    """Run ``nova-lite-manage`` of this installation."""
    return run(sys.executable, "-m", "nova_lite.cmd.manage", *arguments, given=given, user=user)


def install_packages(*names: str) -> list[str]:
    """Install Debian packages that are missing, and return their names."""
    missing = [name for name in names if not _is_installed(name)]
    if missing:
        if shutil.which("apt-get") is None:
            raise exceptions.ConfigurationError(reason=f"apt-get is missing: install {', '.join(missing)} yourself.")
        run("apt-get", "update", "--quiet", seconds=APT_SECONDS)
        run("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *missing, seconds=APT_SECONDS)
    return missing


def _is_installed(name: str) -> bool:
    try:
        return run("dpkg-query", "--show", "--showformat=${db:Status-Status}", name) == "installed"
    except exceptions.ConfigurationError:
        return False


def require_space(path: str, free_mb: int) -> None:
    """Raise `ConfigurationError` unless the file system of ``path`` has so much space."""
    if free_bytes(path) >> 20 < free_mb:
        raise exceptions.ConfigurationError(reason=f"{path} has less than {free_mb} MiB free.")


def write_once(path: Path, text: str, group: str = "root", mode: int = 0o640) -> bool:
    """Write a file unless it exists. Returns whether it was written."""
    if path.exists():
        return False
    write(path, text, group, mode)
    return True


def write(path: Path, text: str, group: str, mode: int = 0o640) -> None:
    """Write a file of root that a group may read."""
    files.write_atomically(str(path), text.encode(), mode=mode, owner=(0, _group_id(group)))


def replace(path: Path, text: str, mode: int = 0o644) -> bool:
    """Write a file whose content is not the operator's. Returns whether it changed."""
    if path.exists() and path.read_text() == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomically(str(path), text.encode(), mode=mode)
    return True


def _group_id(name: str) -> int:
    import grp

    try:
        return grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise exceptions.ConfigurationError(reason=f"there is no group {name}.") from error


def ini(sections: Sections, header: str = _HEADER) -> str:
    """Return the text of a configuration file, in which ``$`` stands for itself.

    Raises `ValueError` for a value that would become more than one line.
    """
    lines = [header]
    for section, values in sections.items():
        lines += ["", f"[{section}]"]
        for name, value in values.items():
            if any(character in value for character in "\r\n\0"):
                raise ValueError(f"[{section}] {name} has several lines")
            lines.append(f"{name} = {value.replace('$', '$$')}")
    return "\n".join([*lines, ""])


def setting(path: Path, section: str, name: str) -> str | None:
    """Return a value of a configuration file as `ini` takes it, or None if it has none."""
    return sections(path).get(section, {}).get(name)


def sections(path: Path) -> Sections:
    """Return a configuration file as `ini` takes it. Raises `ConfigurationError` if it cannot be read."""
    parser = configparser.RawConfigParser(strict=False, default_section="")
    try:
        parser.read(path, encoding="utf-8")
    except configparser.Error as error:
        raise exceptions.ConfigurationError(reason=f"{path}: {' '.join(str(error).split())}") from error
    return {
        section: {name: value.replace("$$", "$") for name, value in parser.items(section)}
        for section in parser.sections()
    }


def install_units(names: Sequence[str]) -> list[str]:
    """Write units with this installation's programs, and return the names of changed ones.

    A unit of a Debian package that runs these programs stays the only one, so that upgrades of the package change it.
    """
    directory = Path(sys.executable).parent
    changed = []
    for name in names:
        packaged = PACKAGED / "systemd" / "system" / f"{name}.service"
        if packaged.exists() and f"={directory}/" in packaged.read_text():
            continue
        text = (FILES / "systemd" / f"{name}.service").read_text()
        if replace(UNITS / f"{name}.service", text.replace("/opt/nova-lite/venv/bin/", f"{directory}/")):
            changed.append(name)
    run("systemctl", "daemon-reload")  # an interrupted call may have left a changed unit
    return changed


def unit_settings(unit: str) -> Path:
    """Return the file of our settings for a unit of a Debian package."""
    return UNITS / f"{unit}.d" / "nova-lite.conf"


def write_unit_settings(unit: str, text: str) -> bool:
    """Write our settings for a unit of a Debian package. Returns whether they have changed."""
    changed = replace(unit_settings(unit), f"# Written by nova-lite-setup, which replaces it.\n{text}")
    if changed:
        run("systemctl", "daemon-reload")
    return changed


def remove_unit_settings(*units: str) -> None:
    for unit in units:
        path = unit_settings(unit)
        path.unlink(missing_ok=True)
        if path.parent.is_dir() and not any(path.parent.iterdir()):
            path.parent.rmdir()


def has_unit(name: str) -> bool:
    """Check whether a unit exists, of a set-up or of a Debian package."""
    return any((directory / f"{name}.service").exists() for directory in (UNITS, PACKAGED / "systemd" / "system"))


def install_settings(directory: str) -> Path:
    """Write our file of a directory such as /etc/sysusers.d, unless a Debian package has it. Returns its path."""
    packaged = PACKAGED / directory / "nova-lite-common.conf"
    if packaged.exists():
        return packaged
    path = Path("/etc") / directory / "nova-lite.conf"
    replace(path, (FILES / directory / "nova-lite.conf").read_text())
    return path


def has_user(name: str) -> bool:
    return any(entry.pw_name == name for entry in pwd.getpwall())


def ids(user: str) -> tuple[int, int]:
    """Return the numbers of a user and its group. Raises `ConfigurationError`."""
    try:
        entry = pwd.getpwnam(user)
    except KeyError as error:
        raise exceptions.ConfigurationError(reason=f"there is no user {user}.") from error
    return entry.pw_uid, entry.pw_gid
