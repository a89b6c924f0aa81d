"""Hardware requests of flavors over REST: refused with a sentence, or decisive for the host."""

from __future__ import annotations

import json

from tests.functional.cloud import Cloud
from tests.functional.server_requests import MEMBER, ask


def flavor(cloud: Cloud, name: str, **specs: str) -> None:
    ask(cloud, "POST", "/flavors", {"flavor": {"id": name, "name": name, "ram": 64, "disk": 1, "vcpus": 2}})
    ask(cloud, "POST", f"/flavors/{name}/os-extra_specs", {"extra_specs": specs})


def refusal(cloud: Cloud, flavor_id: str) -> str:
    server = {"name": "vm", "imageRef": cloud.image_id, "flavorRef": flavor_id}
    message = ask(cloud, "POST", "/servers", {"server": server}, status=400, token=MEMBER)["badRequest"]["message"]
    return str(message)


def test_hardware_is_honoured_or_refused(tidy: Cloud) -> None:
    body = {"extra_specs": {"hw:viommu_model": "intel"}}
    answer = ask(tidy, "POST", "/flavors/1/os-extra_specs", body, status=400)
    assert answer["badRequest"]["message"] == (
        "Extra spec 'hw:viommu_model' (intel) is not supported here: guests have no IOMMU of their own."
    )
    flavor(tidy, "masked", **{"hw:cpu_dedicated_mask": "0-1"})
    assert refusal(tidy, "masked") == "hw:cpu_dedicated_mask needs hw:cpu_policy=mixed."

    flavor(tidy, "sockets", **{"hw:cpu_max_sockets": "1", "hw:cpu_max_cores": "1", "hw:cpu_max_threads": "1"})
    assert refusal(tidy, "sockets") == "A guest cannot have 2 vCPUs with at most 1 sockets x 1 cores x 1 threads."

    flavor(tidy, "gold", **{"trait:CUSTOM_GOLD": "required"})
    (server,) = tidy.create(flavor="gold")
    fault = tidy.wait_settled([server])[server]["fault"]["message"]
    assert "TraitsFilter (traits CUSTOM_GOLD)" in fault
    flavor(tidy, "any", **{"trait:COMPUTE_NODE": "required", "hw:cpu_sockets": "1", "quota:cpu_shares": "100"})
    (server,) = tidy.create(flavor="any")
    tidy.wait_active([server])
    tidy.delete_all()
    for name in ("masked", "sockets", "gold", "any"):
        ask(tidy, "DELETE", f"/flavors/{name}", status=202)


def test_server_with_a_tpm_keeps_it_or_the_request_is_refused(tidy: Cloud) -> None:
    flavor(tidy, "tpm", **{"hw:tpm_version": "2.0", "hw:tpm_model": "tpm-crb"})
    (server,) = tidy.create(flavor="tpm")
    tidy.wait_active([server])
    assert wrapped_keys(tidy) == 1
    for operation, body in (
        ("rebuild", {"rebuild": {"imageRef": tidy.image_id}}),
        ("rescue", {"rescue": {}}),
        ("shelve", {"shelve": None}),
    ):
        answer = ask(tidy, "POST", f"/servers/{server}/action", body, status=409, token=MEMBER)
        assert answer["conflictingRequest"]["message"] == (
            f"Operation '{operation}' not supported for vTPM-enabled instance ({server})."
        )
    ask(tidy, "POST", f"/servers/{server}/action", {"reboot": {"type": "HARD"}}, status=202, token=MEMBER)
    tidy.wait_active([server])
    assert wrapped_keys(tidy) == 1
    flavor(tidy, "users", **{"hw:tpm_version": "2.0", "hw:tpm_secret_security": "user"})
    assert "it takes deployment, because the cloud keeps the keys" in refusal(tidy, "users")
    tidy.delete_all()
    assert wrapped_keys(tidy) == 0
    for name in ("tpm", "users"):
        ask(tidy, "DELETE", f"/flavors/{name}", status=202)


def test_server_with_encrypted_disks_has_keys_and_no_images(tidy: Cloud) -> None:
    flavor(tidy, "encrypted", **{"hw:ephemeral_encryption": "yes"})
    (server,) = tidy.create(flavor="encrypted")
    tidy.wait_active([server])
    assert wrapped_keys(tidy) == 1
    for operation, body in (
        ("createImage", {"createImage": {"name": "image"}}),
        ("createBackup", {"createBackup": {"name": "backup", "backup_type": "daily", "rotation": 1}}),
        ("shelve", {"shelve": None}),
    ):
        answer = ask(tidy, "POST", f"/servers/{server}/action", body, status=409)
        assert answer["conflictingRequest"]["message"] == (
            f"Operation '{operation}' is not supported for server {server}: its root disk is encrypted, and the image "
            "would not be."
        )
    answer = ask(tidy, "POST", f"/servers/{server}/action", {"resize": {"flavorRef": "1"}}, status=400)
    assert answer["badRequest"]["message"].startswith("The disks of a server stay encrypted, or stay plain")
    ask(tidy, "POST", f"/servers/{server}/action", {"rebuild": {"imageRef": tidy.image_id}}, status=202)
    tidy.wait_active([server])
    assert wrapped_keys(tidy) == 1
    tidy.delete_all()
    assert wrapped_keys(tidy) == 0
    ask(tidy, "DELETE", "/flavors/encrypted", status=202)


def wrapped_keys(cloud: Cloud) -> int:
    """Return the number of keys that the cloud's master key wraps."""
    return sum(int(key["keys"]) for key in json.loads(cloud.manage("--format", "json", "volume-key", "list")))
