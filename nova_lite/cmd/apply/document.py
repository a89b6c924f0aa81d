"""File that describes a cloud: its form, and the line of each part."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

import msgspec
import yaml

from nova_lite.base import ip
from nova_lite.cmd.apply import mark

#: Bytes of a file.
MAX_SIZE = 4 * 1024 * 1024

Name: TypeAlias = Annotated[str, msgspec.Meta(pattern=mark.NAME)]
#: Names of things that exist already: their owners have chosen them.
OtherName: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=100)]
Size: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1000)]


class Mistake(Exception):
    """A mistake in the file, or a request that the cloud refuses: one sentence. ``path``: the part of the file."""

    def __init__(self, sentence: str, path: str = "") -> None:
        super().__init__(sentence)
        self.path = path


class _Part(msgspec.Struct, forbid_unknown_fields=True):
    name: Name


class Project(_Part):
    description: Text = ""


class Flavor(_Part):
    """``ram``, ``swap``: MiB. ``disk``, ``ephemeral``: GiB. ``projects``: may use it; default: all projects."""

    ram: Size
    vcpus: Size
    disk: Size
    id: str | None = None
    ephemeral: Size = 0
    swap: Size = 0
    extra_specs: dict[str, str] = {}
    projects: list[OtherName] = []
    description: Text = ""


class KeyPair(_Part):
    """``public_key``: in OpenSSH's form. ``file``: its path, relative to the file of the cloud."""

    public_key: str | None = None
    file: str | None = None


class ServerGroup(_Part):
    policy: Literal["affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"]


class Rule(msgspec.Struct, forbid_unknown_fields=True):
    """``ports``: a number, or a range such as 8000-8010. ``remote``: a range of addresses, or a group; default: all."""

    protocol: Literal["tcp", "udp", "icmp", "any"] = "any"
    ports: int | str | None = None
    remote: OtherName | None = None
    direction: Literal["ingress", "egress"] = "ingress"
    ip_version: Literal[4, 6] = 4


class SecurityGroup(_Part):
    rules: list[Rule] = []
    description: Text = ""


class Subnet(_Part):
    cidr: str
    dns: list[str] = []


class Network(_Part):
    """``cidr``, ``dns``: its only subnet, which has the network's name."""

    cidr: str | None = None
    dns: list[str] = []
    subnets: list[Subnet] = []
    description: Text = ""


class Router(_Part):
    """``gateway``: pool of floating addresses. ``subnets``: names of this file's subnets."""

    gateway: OtherName | None = None
    subnets: list[Name] = []
    description: Text = ""


class Server(_Part):
    """``flavor``, ``image``, ``networks``, ``key_pair``, ``security_groups``: names. ``user_data``: for cloud-init."""

    flavor: OtherName
    image: OtherName
    networks: Annotated[list[OtherName], msgspec.Meta(min_length=1)]
    count: Count = 1
    key_pair: OtherName | None = None
    security_groups: list[OtherName] = msgspec.field(default_factory=lambda: ["default"])
    server_group: OtherName | None = None
    availability_zone: str | None = None
    metadata: dict[str, str] = {}
    tags: list[str] = []
    user_data: str | None = None
    description: Text = ""


class Volume(_Part):
    """``size``: GiB. ``server``: name of a server of this file that it is attached to."""

    size: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    image: OtherName | None = None
    type: OtherName | None = None
    server: Name | None = None
    metadata: dict[str, str] = {}
    description: Text = ""


class FloatingAddress(_Part):
    """``server``: name of a server of this file. Its first network gets the address."""

    pool: OtherName
    server: Name | None = None
    description: Text = ""


class Schedule(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    every: Literal["hour", "day", "week"]
    minute: int = 0
    hour: int | None = None
    weekday: str | None = None


class BackupPolicy(_Part):
    """``retention``: numbers of ``hourly``, ``daily`` and ``weekly`` backups. ``tags``, ``all``: its servers."""

    schedule: Schedule
    retention: dict[Literal["hourly", "daily", "weekly"], int]
    tags: list[str] = []
    all: bool = False


class Document(msgspec.Struct, forbid_unknown_fields=True):
    """Content of a file. ``cloud``: name in the marks of what it makes."""

    cloud: Annotated[str, msgspec.Meta(pattern=mark.CLOUD)]
    projects: list[Project] = []
    flavors: list[Flavor] = []
    key_pairs: list[KeyPair] = []
    server_groups: list[ServerGroup] = []
    security_groups: list[SecurityGroup] = []
    networks: list[Network] = []
    routers: list[Router] = []
    servers: list[Server] = []
    volumes: list[Volume] = []
    floating_addresses: list[FloatingAddress] = []
    backup_policies: list[BackupPolicy] = []


class File(msgspec.Struct):
    """``lines``: lines of the parts of the file, by paths such as ``servers[0].flavor``."""

    path: str
    document: Document
    lines: dict[str, int]

    def complaint(self, error: Mistake) -> str:
        """Return one line: the file, the line of the part, and the sentence."""
        return complaint(self.path, self.lines, error)


def complaint(file: str, lines: dict[str, int], error: Mistake) -> str:
    path = error.path
    while path and path not in lines:
        path = re.sub(r"(\.[^.[]*|\[[^]]*\]|^[^.[]*)\Z", "", path)
    place = f"{file}:{lines[path]}" if path else file
    text = "".join(character if character.isprintable() else " " for character in str(error))
    return f"{place}: {' '.join(text.split())}"


def load(path: str) -> File:
    """Read a file, and the public keys that it names. Raises `Mistake` with a sentence that has its place already."""
    lines: dict[str, int] = {}
    try:
        document = _convert(_read(path), lines)
        for index, key in enumerate(document.key_pairs):
            _read_key(key, os.path.dirname(path), f"key_pairs[{index}]")
        _check(document)
    except Mistake as error:
        raise Mistake(complaint(path, lines, error)) from error
    return File(path, document, lines)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_SIZE + 1)
    except OSError as error:
        raise Mistake(f"the file cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise Mistake("the file is no text in UTF-8.") from error
    if len(text) > MAX_SIZE:
        raise Mistake(f"the file has more than {MAX_SIZE} characters: divide it.")
    return text


def _convert(text: str, lines: dict[str, int]) -> Document:
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        for path, line in _lines_of(node, "", set()):
            lines[path] = line
        value = None if node is None else loader.construct_document(node)
        return msgspec.convert({} if value is None else value, Document)
    except yaml.MarkedYAMLError as error:
        lines["YAML"] = error.problem_mark.line + 1 if error.problem_mark else 1
        raise Mistake(f"this is no YAML: {error.problem or error.context}.", "YAML") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        sentence, _, path = str(error).partition(" - at `$")
        raise Mistake(f"{sentence} {path.strip('.`')}".strip() + ".", path.strip(".`")) from error
    finally:
        loader.dispose()


def _lines_of(node: yaml.Node | None, path: str, above: set[int]) -> Iterator[tuple[str, int]]:
    """Yield each part of a node with its line. Raises `Mistake` for a key that a part has twice."""
    if node is None or id(node) in above or len(above) > 20:
        return
    yield path, node.start_mark.line + 1
    above = above | {id(node)}
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _lines_of(item, f"{path}[{index}]", above)
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, item in node.value:
            inner = f"{path}.{key.value}".lstrip(".")
            yield inner, key.start_mark.line + 1
            if str(key.value) in seen:
                raise Mistake(f"{key.value} is there twice: remove one.", inner)
            seen.add(str(key.value))
            yield from _inner(item, inner, above)


def _inner(node: yaml.Node, path: str, above: set[int]) -> Iterator[tuple[str, int]]:
    """Yield the parts of a value. Its own line is that of its key."""
    parts = _lines_of(node, path, above)
    next(parts, None)
    yield from parts


def _read_key(key: KeyPair, directory: str, path: str) -> None:
    if (key.public_key is None) == (key.file is None):
        raise Mistake(f"key pair {key.name} needs either public_key or file.", path)
    if key.file is not None:
        try:
            with open(os.path.join(directory, key.file), encoding="utf-8") as file:
                key.public_key = file.read(MAX_SIZE)
        except (OSError, UnicodeDecodeError) as error:
            raise Mistake(f"key pair {key.name}: {key.file} is not a readable text.", f"{path}.file") from error
    assert key.public_key is not None
    key.public_key = key.public_key.strip()
    if len(key.public_key.splitlines()) != 1 or mark.PREFIX in key.public_key or " " not in key.public_key:
        raise Mistake(f"key pair {key.name}: the public key is one line such as ssh-ed25519 AAAA….", path)


def _check(document: Document) -> None:
    for index, network in enumerate(document.networks):
        path = f"networks[{index}]"
        if network.cidr is not None:
            if network.subnets:
                raise Mistake(f"network {network.name} has either cidr or subnets.", path)
            network.subnets = [Subnet(network.name, network.cidr, network.dns)]
        for place, subnet in enumerate(network.subnets):
            inner = path if network.cidr is not None else f"{path}.subnets[{place}]"
            subnet.cidr = str(_range(subnet.cidr, f"subnet {subnet.name}", f"{inner}.cidr"))
    for index, group in enumerate(document.security_groups):
        for place, rule in enumerate(group.rules):
            _check_rule(rule, f"security group {group.name}", f"security_groups[{index}].rules[{place}]")
    for index, policy in enumerate(document.backup_policies):
        if policy.all == bool(policy.tags):
            raise Mistake(f"backup policy {policy.name} needs either tags or all: true.", f"backup_policies[{index}]")


def _range(text: str, what: str, path: str, version: int = 4) -> ip.Network:
    try:
        found = ip.parse_network(text)
    except ValueError as error:
        raise Mistake(f"{what}: {text!r} is no range of addresses such as 10.0.1.0/24.", path) from error
    if found.version != version:
        raise Mistake(f"{what}: {text} is not of IPv{version}.", path)
    return found


def _check_rule(rule: Rule, what: str, path: str) -> None:
    """Bring a rule into one form: ports as text, and the remote range without host bits, or None for all."""
    if rule.ports is not None:
        ends = str(rule.ports).split("-")
        if rule.protocol not in ("tcp", "udp"):
            raise Mistake(f"{what}: ports need protocol tcp or udp.", f"{path}.ports")
        if len(ends) > 2 or not all(re.fullmatch("[0-9]{1,5}", end) and 1 <= int(end) <= 65535 for end in ends):
            raise Mistake(f"{what}: ports is a number from 1 to 65535, or a range such as 80-90.", f"{path}.ports")
        if int(ends[0]) > int(ends[-1]):
            raise Mistake(f"{what}: the ports {rule.ports} begin with the larger one.", f"{path}.ports")
        rule.ports = "-".join(str(int(end)) for end in dict.fromkeys(ends))
    if rule.remote is not None and "/" in rule.remote:
        found = _range(rule.remote, what, f"{path}.remote", rule.ip_version)
        rule.remote = str(found) if found.prefixlen else None
