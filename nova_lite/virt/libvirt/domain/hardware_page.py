"""Generator of ``docs/reference/hardware.md``, which runs the example of each definition. Its head is handwritten."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Mapping

from nova_lite import hardware
from nova_lite.base import exceptions, markdown
from nova_lite.hardware import fitting, pci, table
from nova_lite.hardware.definition import Definition, Outcome
from nova_lite.objects import VIF, Flavor, Image, Instance, Network, NUMACell, NUMAPages, PCIDevice
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.disks.disks import Disk, DiskSet, encrypted_disk
from nova_lite.virt.libvirt.domain import guest_xml
from nova_lite.virt.libvirt.domain.consoles import Listeners
from nova_lite.virt.libvirt.host import kvm

#: The page is handwritten above this line.
MARK = "<!-- Made by `nova-lite-manage api hardware` from here on. -->\n"

_SECTIONS = (
    ("CPU", table.CPU),
    ("Memory and NUMA", table.MEMORY),
    ("Firmware and machine", table.FIRMWARE),
    ("Disks", table.DISKS),
    ("Interfaces", table.INTERFACES),
    ("Other devices", table.DEVICES),
    ("CPU limits, and limits of other hypervisors", table.QUOTA),
    ("Placement", table.PLACEMENT),
    ("Guest system", table.SYSTEM),
    ("Not for this hypervisor", table.OTHERS),
)

_CELLS = [
    NUMACell(
        id=number,
        memory_mb=4096,
        shared_cpus=f"{first}-{first + 3}",
        dedicated_cpus=f"{first + 4}-{first + 11}",
        siblings=[f"{core}-{core + 1}" for core in range(first, first + 12, 2)],
        pages=[NUMAPages(size_kb=4, total=786432), NUMAPages(size_kb=2048, total=512)],
    )
    for number, first in ((0, 0), (1, 12))
]

#: The device and the vGPU of examples that request one.
_DEVICE = PCIDevice(address="0000:81:00.0", vendor_id="10de", product_id="1eb8")
_VGPU = PCIDevice(address="0000:84:00.0#0", vendor_id="", product_id="", resource_class="VGPU")

#: Key among an example's properties that sets the image's format.
_FORMAT = "disk_format"


def page() -> str:
    """Return the generated part of the page, with its mark."""
    return "\n".join([MARK, *(_section(title, definitions) for title, definitions in _SECTIONS)])


def _section(title: str, definitions: tuple[Definition, ...]) -> str:
    return f"## {title}\n\n" + "\n".join(map(entry, definitions))


def entry(definition: Definition) -> str:
    """Return the heading of one definition, and a list of its values, its outcome, and its example."""
    names = ", ".join(_code(name) for name in (definition.flavor, definition.image) if name)
    example = " ".join(f"`{key}={value}`" for key, value in {**definition.specs, **definition.properties}.items())
    facts = (
        f"Takes {definition.values.description}",
        _outcome(definition),
        f"Example: {example}: {effect(definition)}",
    )
    return "\n".join([f"### {names}\n", *map(markdown.item, facts), ""])


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _outcome(definition: Definition) -> str:
    description = f"**{definition.outcome.value}**: {definition.description}"
    if definition.harmless:
        description += f"; `{definition.harmless[0]}` requests nothing"
    if (
        definition.flavor
        and definition.image
        and definition.outcome is Outcome.HONOURED
        and definition.name != "traits"
    ):
        description += f"; {definition.precedence.value}"
    return description


def effect(definition: Definition) -> str:
    """Run the example and return its effect: the refusal, the XML that it adds, or the words in its definition."""
    try:
        made = xml(definition.specs, definition.properties)
    except exceptions.HardwareRefused as error:
        return f"400, “{error.message}”"
    new = added(_without(definition), made)
    if new:
        return " ".join(f"`{line}`" for line in new)
    if gone := added(made, _without(definition)):
        return "without " + " ".join(f"`{line}`" for line in gone)
    return definition.other_effect or "nothing"


def _without(definition: Definition) -> str:
    """Return the domain of the example's guest without the setting of ``definition``."""
    specs = {key: value for key, value in definition.specs.items() if table.find_extra_spec(key) is not definition}
    properties = {
        key: value for key, value in definition.properties.items() if table.find_image_property(key) is not definition
    }
    return xml(specs, properties, strict=False)


def xml(specs: Mapping[str, str], properties: Mapping[str, str], strict: bool = True) -> str:
    """Return the domain of a guest. Raises `HardwareRefused`.

    The guest has four vCPUs, a disk, an interface and a screen. The host has KVM and two NUMA cells with four shared
    and eight dedicated CPUs each.
    """
    own = {key: value for key, value in properties.items() if key != _FORMAT}
    image = Image(id="image", name="image", disk_format=properties.get(_FORMAT, "qcow2"), properties=own)
    flavor = Flavor(flavorid="1", name="flavor", vcpus=4, memory_mb=512, root_gb=1, extra_specs=dict(specs))
    network = Network(id="network", name="net", cidr="10.0.0.0/24", gateway="10.0.0.1", bridge="br0")
    vif = VIF(id="vif", mac_address="fa:16:3e:00:00:01", address="10.0.0.2", network=network)
    instance = Instance(
        uuid="00000000-0000-4000-8000-000000000000",
        project_id="project",
        user_id="user",
        display_name="server",
        hostname="server",
        vm_state="building",
        flavor=flavor,
    )
    spec = SpawnSpec(
        instance=instance,
        generation=1,
        vifs=[vif],
        image=image,
        images={},
        injected_files={},
        admin_password=None,
        fence=lambda: None,
    )
    requested = hardware.resolve(flavor, image, strict)
    if requested.numa is not None:
        instance.numa = fitting.fit(requested.numa, _CELLS, {}, fitting.Ratios())
    if pci.ALIAS in specs:
        instance.pci = [_DEVICE]
    if any(key.startswith(pci.RESOURCES) for key in specs):
        instance.pci = [_VGPU]
    root = Disk(path="/instances/disk", device="vda", format="qcow2")
    if requested.encrypted_disks:
        root = encrypted_disk(spec, "/instances/disk.luks", "vda")
    disks = DiskSet(disks=[root], direct_boot=None)
    given = guest_xml.Host(shared_cpus={str(cell.id): cell.shared_cpus for cell in _CELLS})
    listeners = Listeners(vnc="127.0.0.1")
    return guest_xml.guest_xml(spec, "host", "/instances", disks, kvm.KVM, 0, listeners, requested, given)


def added(before: str, after: str) -> list[str]:
    """Return the elements of ``after`` that are not in ``before``, with their paths, in order."""
    have = Counter(_elements(before))
    new = []
    for line in _elements(after):
        if have[line]:
            have[line] -= 1
        else:
            new.append(line)
    return new


def _elements(text: str) -> Iterator[str]:
    root = ET.fromstring(text)  # noqa: S314 our own
    yield from _below(root, "")


def _below(element: ET.Element, path: str) -> Iterator[str]:
    for child in element:
        if child.tag == "metadata":
            yield from (f"metadata/{part.tag.rpartition('}')[2]}" for part in child[0] if "created" not in part.tag)
            continue
        attributes = "".join(f' {name}="{value}"' for name, value in child.attrib.items())
        content = f">{child.text}</{child.tag}>" if child.text else "/>"
        if attributes or child.text or len(child) == 0:
            yield f"{path}<{child.tag}{attributes}{content}"
        yield from _below(child, f"{path}{child.tag}/")
