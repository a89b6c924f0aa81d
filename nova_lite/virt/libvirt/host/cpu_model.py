"""The CPU model of guests, by ``[libvirt] cpu_mode`` and related options."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping

import msgspec
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.virt.libvirt.host import kvm

CUSTOM, HOST_MODEL, PASSTHROUGH, NONE = "custom", "host-model", "host-passthrough", "none"

#: Our mode: the model that the hosts of an aggregate have in common.
BASELINE = "baseline"

#: libvirt's modes without an option. The first is Nova's: a guest of the host's model can move to other hosts with it.
MODES = {kvm.KVM: HOST_MODEL, kvm.QEMU: "maximum"}

_POLICIES = {"+": "require", "-": "disable"}


class CpuModel(msgspec.Struct, frozen=True):
    """A CPU model. ``mode``: libvirt's mode; empty: qemu's default. ``model``: for mode custom. ``flags``: policy by
    feature."""

    mode: str
    model: str = ""
    flags: dict[str, str] = {}

    def element(self) -> ET.Element:
        """Return the XML element without its features, which come last."""
        if self.mode == NONE:
            return ET.Element("cpu")
        if self.mode != CUSTOM:
            return ET.Element("cpu", mode=self.mode)
        element = ET.Element("cpu", mode=CUSTOM, match="exact")
        ET.SubElement(element, "model").text = self.model
        return element

    def whole(self) -> ET.Element:
        """Return the XML element with its features."""
        element = self.element()
        self.add_features(element, {})
        return element

    def add_features(self, element: ET.Element, more: Mapping[str, str]) -> None:
        for name, policy in {**self.flags, **more}.items():
            ET.SubElement(element, "feature", policy=policy, name=name)


#: The model of emulated guests of the architecture aarch64: each qemu has it, and systems for ARMv8 run on it.
AARCH64 = CpuModel(CUSTOM, "cortex-a57")


def default(virt_type: str) -> CpuModel:
    return CpuModel(mode=MODES[virt_type])


def of_baseline(definition: str) -> CpuModel:
    """Return the model of a `HostCpu.definition`."""
    model, *differences = definition.split()
    return CpuModel(CUSTOM, model, {name[1:]: _POLICIES[name[0]] for name in differences})


def choose(conf: cfg.ConfigOpts, virt_type: str, capabilities: str) -> CpuModel:
    """Choose the first of ``cpu_models`` that runs here. Raises `ConfigurationError`.

    With ``cpu_mode = baseline`` it is the host's model, until the host knows the baseline.

    ``capabilities``: libvirt's domain capabilities of this host.
    """
    flags = {}
    for flag in conf.libvirt.cpu_model_extra_flags:
        policy, name = (_POLICIES[flag[0]], flag[1:]) if flag[:1] in _POLICIES else (_POLICIES["+"], flag)
        flags[name.lower()] = policy
    mode = conf.libvirt.cpu_mode or MODES[virt_type]
    if mode == BASELINE:
        if flags:
            raise exceptions.ConfigurationError(
                reason="[libvirt] cpu_model_extra_flags do not go with cpu_mode = baseline."
            )
        mode = HOST_MODEL
    if conf.libvirt.cpu_models and mode != CUSTOM:
        raise exceptions.ConfigurationError(reason="[libvirt] cpu_models go with cpu_mode = custom.")
    if mode == NONE and flags:
        raise exceptions.ConfigurationError(reason="[libvirt] cpu_model_extra_flags do not go with cpu_mode = none.")
    described = ET.fromstring(capabilities)  # noqa: S314 libvirt's own
    found = described.find(f"cpu/mode[@name='{mode}']")
    if mode != NONE and (found is None or found.get("supported") != "yes"):
        raise exceptions.ConfigurationError(reason=f"[libvirt] cpu_mode = {mode}: not with {virt_type} on this host.")
    return CpuModel(mode=mode, model=_model(conf, described) if mode == CUSTOM else "", flags=flags)


def _model(conf: cfg.ConfigOpts, described: ET.Element) -> str:
    models = list(conf.libvirt.cpu_models)
    if not models:
        raise exceptions.ConfigurationError(reason="[libvirt] cpu_mode = custom needs cpu_models.")
    usable = {
        element.text
        for element in described.iterfind("cpu/mode[@name='custom']/model")
        if element.get("usable") != "no"
    }
    for model in models:
        if model in usable:
            return str(model)
    raise exceptions.ConfigurationError(reason=f"[libvirt] cpu_models: this host runs none of {', '.join(models)}.")
