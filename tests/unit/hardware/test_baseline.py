"""The largest processor that several hosts have."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.hardware import baseline
from nova_lite.objects import HostCpu


def cpu(definition: str, features: str, **changes: Any) -> HostCpu:
    values = {"virt_type": "kvm", "vendor": "Intel", **changes}
    return HostCpu(definition=definition, features=features, **values)


OLD = cpu("Haswell +vmx -pcid", "aes avx vmx")
NEW = cpu("Skylake-Server -hle", "aes avx avx512f pcid")


def test_baseline_has_the_common_features_and_the_closest_model() -> None:
    found = baseline.find({"old": OLD, "new": NEW})
    assert found.definition == "Haswell -pcid", "of Skylake-Server three features would have to go"
    assert found.features == {"aes", "avx"}
    assert found.given_up == {"old": ["vmx"], "new": ["avx512f", "pcid"]}
    assert found.without == {"avx512f": ["old"], "pcid": ["old"], "vmx": ["new"]}


def test_baseline_of_equal_hosts_is_their_processor() -> None:
    found = baseline.find({"one": NEW, "two": NEW})
    assert (found.definition, found.without) == ("Skylake-Server -hle", {})


def test_baseline_adds_what_the_closest_model_lacks() -> None:
    more = cpu("Haswell +pku +vmx", "aes avx pcid pku vmx")
    assert baseline.find({"old": more, "new": cpu("Haswell +pku", "aes avx pcid pku")}).definition == "Haswell +pku"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"vendor": "AMD"}, r"no vendor of processors in common \(Intel: old; AMD: new\)"),
        ({"virt_type": "qemu"}, r"no type of guests in common \(kvm: old; qemu: new\)"),
    ],
)
def test_hosts_without_a_common_processor_have_no_baseline(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(exceptions.InvalidInput, match=reason):
        baseline.find({"old": OLD, "new": cpu("EPYC", "aes", **changes)})


@pytest.mark.parametrize("text", ["Haswell", "Skylake-Server-noTSX-IBRS +sse4.1 -fxsr_opt", "EPYC -3dnowprefetch"])
def test_definition_is_recognised(text: str) -> None:
    assert baseline.is_definition(text)


@pytest.mark.parametrize("text", ["", "Haswell vmx", "Haswell +", "<cpu/>", "Haswell  +vmx", "+vmx", "Haswell +vmx\n"])
def test_other_text_is_no_definition(text: str) -> None:
    assert not baseline.is_definition(text)
