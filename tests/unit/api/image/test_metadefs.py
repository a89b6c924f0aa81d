"""Metadata definitions over a real conductor: namespaces, their parts, visibility and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite.api.image.metadef_schemas import SCHEMAS
from tests.support.api_client import ADMIN, MEMBER, STRANGER
from tests.support.image_service import ImageService

NAMESPACES = "/metadefs/namespaces"


@pytest.fixture
def images(tmp_path: Path) -> Iterator[ImageService]:
    made = ImageService(tmp_path)
    yield made
    made.manager.close()


def names(response: Any, kind: str, key: str = "name") -> list[str]:
    return [item[key] for item in response.json[kind]]


def test_namespace_is_created_with_its_parts_and_deleted(images: ImageService) -> None:
    body = {
        "namespace": "OS::Compute::Quota",
        "display_name": "Limits",
        "visibility": "public",
        "resource_type_associations": [{"name": "OS::Nova::Flavor", "prefix": "quota:"}],
        "properties": {"cpu_shares": {"title": "Shares", "type": "integer", "minimum": 1}},
        "objects": [{"name": "disk", "properties": {"iops": {"title": "IOPS", "type": "integer"}}}],
        "tags": [{"name": "limits"}],
    }
    images.made(NAMESPACES, body, ADMIN)
    shown = images("GET", f"{NAMESPACES}/OS::Compute::Quota").json
    assert (shown["namespace"], shown["visibility"], shown["protected"]) == ("OS::Compute::Quota", "public", False)
    assert shown["self"] == "/v2/metadefs/namespaces/OS%3A%3ACompute%3A%3AQuota"
    assert shown["properties"] == {"cpu_shares": {"title": "Shares", "type": "integer", "minimum": 1}}
    assert [shown["objects"][0]["name"], shown["tags"][0]["name"]] == ["disk", "limits"]
    assert shown["resource_type_associations"][0]["prefix"] == "quota:"
    path = f"{NAMESPACES}/OS::Compute::Quota/properties/quota:cpu_shares?resource_type=OS::Nova::Flavor"
    assert images("GET", path).json["name"] == "quota:cpu_shares"
    assert images("POST", NAMESPACES, body, ADMIN).status_code == 409
    assert images("DELETE", f"{NAMESPACES}/OS::Compute::Quota", token=ADMIN).status_code == 204
    assert images("GET", f"{NAMESPACES}/OS::Compute::Quota", token=ADMIN).status_code == 404


def test_private_namespace_is_hidden_from_other_projects(images: ImageService) -> None:
    images.made(NAMESPACES, {"namespace": "mine", "owner": "demo"}, ADMIN)
    images.made(NAMESPACES, {"namespace": "all", "visibility": "public"}, ADMIN)
    for token, expected in ((MEMBER, {"all", "mine"}), (STRANGER, {"all"}), (ADMIN, {"all", "mine"})):
        assert set(names(images("GET", NAMESPACES, token=token), "namespaces", "namespace")) == expected
    for path in ("", "/objects", "/properties", "/tags", "/resource_types"):
        assert images("GET", f"{NAMESPACES}/mine{path}", token=STRANGER).status_code == 404


def test_members_change_no_definitions(images: ImageService) -> None:
    images.made(NAMESPACES, {"namespace": "n", "owner": "demo"}, ADMIN)
    for method, path, body in (
        ("POST", NAMESPACES, {"namespace": "m"}),
        ("PUT", f"{NAMESPACES}/n", {"namespace": "m"}),
        ("DELETE", f"{NAMESPACES}/n", None),
        ("POST", f"{NAMESPACES}/n/tags/t", None),
        ("POST", f"{NAMESPACES}/n/objects", {"name": "o"}),
        ("DELETE", f"{NAMESPACES}/n/properties", None),
    ):
        assert images(method, path, body).status_code == 403, (method, path)


def test_protected_namespace_is_not_deleted(images: ImageService) -> None:
    images.made(NAMESPACES, {"namespace": "n", "protected": True}, ADMIN)
    images.made(f"{NAMESPACES}/n/tags/t", None, ADMIN)
    for path in ("", "/tags/t", "/tags"):
        assert images("DELETE", f"{NAMESPACES}/n{path}", token=ADMIN).status_code == 403
    changed = images("PUT", f"{NAMESPACES}/n", {"namespace": "m", "protected": False, "description": "d"}, ADMIN).json
    assert (changed["namespace"], changed["protected"], changed["description"]) == ("m", False, "d")
    assert images("DELETE", f"{NAMESPACES}/m", token=ADMIN).status_code == 204


def test_parts_in_an_update_are_those_that_the_namespace_has(images: ImageService) -> None:
    parts = {
        "resource_type_associations": [{"name": "OS::Nova::Flavor", "prefix": "quota:"}],
        "properties": {"cpu": {"title": "Shares", "type": "integer"}},
        "objects": [{"name": "disk", "properties": {"iops": {"title": "IOPS", "type": "integer"}}}],
        "tags": [{"name": "limits"}],
    }
    images.made(NAMESPACES, {"namespace": "n", **parts}, ADMIN)
    known = images("GET", f"{NAMESPACES}/n", token=ADMIN).json
    answer = images("PUT", f"{NAMESPACES}/n", {**known, "description": "d"}, ADMIN)
    assert (answer.status_code, answer.json["description"]) == (200, "d"), answer.text
    other = {
        "resource_type_associations": [{"name": "OS::Glance::Image"}],
        "properties": {"ram": {"title": "RAM", "type": "integer"}},
        "objects": [{"name": "other"}],
        "tags": [{"name": "other"}],
    }
    for part, value in other.items():
        answer = images("PUT", f"{NAMESPACES}/n", {part: value, "description": "e"}, ADMIN)
        assert answer.status_code == 400, (part, answer.text)
        assert part in answer.text
    shown = images("GET", f"{NAMESPACES}/n", token=ADMIN).json
    assert [shown[part] for part in other] == [known[part] for part in other]
    assert shown["description"] == "d"


def test_namespaces_have_filters_order_and_pages(images: ImageService) -> None:
    for name in ("b", "a", "c"):
        association = [{"name": "OS::Nova::Server"}] if name == "a" else []
        body = {"namespace": name, "visibility": "public", "resource_type_associations": association}
        images.made(NAMESPACES, body, ADMIN)
    query = f"{NAMESPACES}?sort_key=namespace&sort_dir=asc&limit=2"
    page = images("GET", query)
    assert names(page, "namespaces", "namespace") == ["a", "b"]
    following = images("GET", page.json["next"].removeprefix("/v2"))
    assert names(following, "namespaces", "namespace") == ["c"]
    assert "next" not in following.json
    filtered = images("GET", f"{NAMESPACES}?resource_types=OS::Nova::Server,OS::Glance::Image")
    assert names(filtered, "namespaces", "namespace") == ["a"]
    assert images("GET", f"{NAMESPACES}?visibility=private").json["namespaces"] == []
    for bad, status in (("limit=x", 400), ("sort_key=color", 400), ("sort_dir=up", 400), ("marker=x", 404)):
        assert images("GET", f"{NAMESPACES}?{bad}").status_code == status, bad


def test_objects_are_added_renamed_and_removed(images: ImageService) -> None:
    images.made(NAMESPACES, {"namespace": "n"}, ADMIN)
    objects = f"{NAMESPACES}/n/objects"
    made = images.made(objects, {"name": "one", "required": ["a"]}, ADMIN)
    assert (made["name"], made["required"], made["schema"]) == ("one", ["a"], "/v2/schemas/metadefs/object")
    assert images("POST", objects, {"name": "one"}, ADMIN).status_code == 409
    images.made(objects, {"name": "two"}, ADMIN)
    assert images("PUT", f"{objects}/one", {"name": "two"}, ADMIN).status_code == 409
    assert images("PUT", f"{objects}/nobody", {"description": "d"}, ADMIN).status_code == 404
    changed = images("PUT", f"{objects}/one", {"name": "new", "description": "d"}, ADMIN).json
    assert (changed["name"], changed["description"]) == ("new", "d")
    assert images("GET", f"{objects}/one", token=ADMIN).status_code == 404
    assert images("GET", f"{objects}/new", token=ADMIN).json["description"] == "d"
    assert images("DELETE", f"{objects}/new", token=ADMIN).status_code == 204
    assert images("DELETE", f"{objects}/new", token=ADMIN).status_code == 404
    assert names(images("GET", objects, token=ADMIN), "objects") == ["two"]
    assert images("DELETE", objects, token=ADMIN).status_code == 204
    assert images("GET", objects, token=ADMIN).json["objects"] == []


def test_properties_are_added_changed_and_removed(images: ImageService) -> None:
    images.made(NAMESPACES, {"namespace": "n"}, ADMIN)
    properties = f"{NAMESPACES}/n/properties"
    body = {"name": "p", "title": "t", "type": "string", "enum": ["80", "443"]}
    assert images.made(properties, body, ADMIN) == body
    changed = images("PUT", f"{properties}/p", {**body, "name": "q", "title": "new"}, ADMIN)
    assert (changed.status_code, changed.json["name"], changed.json["title"]) == (200, "q", "new")
    expected = {"q": {"title": "new", "type": "string", "enum": ["80", "443"]}}
    assert images("GET", properties, token=ADMIN).json["properties"] == expected
    assert images("DELETE", f"{properties}/q", token=ADMIN).status_code == 204
    assert images("GET", f"{properties}/q", token=ADMIN).status_code == 404


def test_tags_are_added_replaced_and_removed(images: ImageService) -> None:
    images.made(NAMESPACES, {"namespace": "n"}, ADMIN)
    tags = f"{NAMESPACES}/n/tags"

    def now() -> list[str]:
        return names(images("GET", tags, token=ADMIN), "tags")

    images.made(f"{tags}/one", None, ADMIN)
    images.made(tags, {"tags": [{"name": "a"}, {"name": "b"}]}, ADMIN)
    assert now() == ["a", "b"]
    images.made(tags, {"tags": [{"name": "c"}]}, ADMIN, X_OpenStack_Append="True")
    assert now() == ["a", "b", "c"]
    append = {"X_OpenStack_Append": "True"}
    assert images("POST", tags, {"tags": [{"name": "c"}]}, ADMIN, **append).status_code == 409
    assert images("PUT", f"{tags}/a", {"name": "d"}, ADMIN).json["name"] == "d"
    assert images("GET", f"{tags}/d", token=ADMIN).json["created_at"]
    assert images("DELETE", f"{tags}/d", token=ADMIN).status_code == 204
    assert now() == ["b", "c"]


def test_associations_name_types_of_resources(images: ImageService) -> None:
    images.made(NAMESPACES, {"namespace": "n"}, ADMIN)
    assert "OS::Glance::Image" in names(images("GET", "/metadefs/resource_types"), "resource_types")
    associations = f"{NAMESPACES}/n/resource_types"
    assert images.made(associations, {"name": "my-type", "prefix": "x:"}, ADMIN)["prefix"] == "x:"
    assert "my-type" in names(images("GET", "/metadefs/resource_types", token=ADMIN), "resource_types")
    assert "my-type" not in names(images("GET", "/metadefs/resource_types", token=STRANGER), "resource_types")
    assert names(images("GET", associations, token=ADMIN), "resource_type_associations") == ["my-type"]
    assert images("DELETE", f"{associations}/my-type", token=ADMIN).status_code == 204
    assert images("GET", associations, token=ADMIN).json == {"resource_type_associations": []}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("", {}),
        ("", {"namespace": ""}),
        ("", {"namespace": "n" * 81}),
        ("", {"namespace": "m", "visibility": "shared"}),
        ("", {"namespace": "m", "protected": "yes"}),
        ("", {"namespace": "m", "description": "d" * 501}),
        ("", {"namespace": "m", "tags": ["t"]}),
        ("", {"namespace": "m", "objects": {"name": "o"}}),
        ("/n/objects", {"name": "o", "color": "red"}),
        ("/n/objects", {"name": "o", "required": "a"}),
        ("/n/properties", {"name": "p", "type": "string"}),
        ("/n/properties", {"name": "p", "title": "t", "type": "color"}),
        ("/n/resource_types", {"name": "r", "prefix": 1}),
    ],
)
def test_invalid_definition_is_refused(images: ImageService, path: str, body: dict[str, Any]) -> None:
    images.made(NAMESPACES, {"namespace": "n"}, ADMIN)
    assert images("POST", f"{NAMESPACES}{path}", body, ADMIN).status_code == 400


def test_too_many_parts_are_refused(images: ImageService) -> None:
    images.made(NAMESPACES, {"namespace": "n"}, ADMIN)
    tags = {"tags": [{"name": str(number)} for number in range(1001)]}
    assert images("POST", f"{NAMESPACES}/n/tags", tags, ADMIN).status_code == 403


def test_schemas_of_definitions(images: ImageService) -> None:
    for kind in SCHEMAS:
        shown = images("GET", f"/schemas/metadefs/{kind}").json
        assert shown["properties"] and shown["name"], kind
    assert images("GET", "/schemas/metadefs/color").status_code == 404


def test_protected_image_is_not_deleted(images: ImageService) -> None:
    image = images.made("/images", {"name": "i", "protected": True})
    assert image["protected"] is True
    assert images("DELETE", f"/images/{image['id']}").status_code == 403
    patch = [{"op": "replace", "path": "/protected", "value": False}]
    content = {"Content_Type": "application/openstack-images-v2.1-json-patch"}
    assert images("PATCH", f"/images/{image['id']}", patch, **content).json["protected"] is False
    assert images("DELETE", f"/images/{image['id']}").status_code == 204


def test_hidden_image_is_listed_on_request_only(images: ImageService) -> None:
    hidden = images.made("/images", {"name": "i", "os_hidden": True})["id"]
    shown = images.made("/images", {"name": "j"})["id"]
    assert names(images("GET", "/images"), "images", "id") == [shown]
    assert names(images("GET", "/images?os_hidden=true"), "images", "id") == [hidden]
    assert names(images("GET", "/images?os_hidden=false"), "images", "id") == [shown]
    assert images("GET", f"/images/{hidden}").json["os_hidden"] is True


def test_tasks_and_stores(images: ImageService) -> None:
    assert images("GET", "/tasks", token=ADMIN).json["tasks"] == []
    assert images("GET", "/tasks").status_code == 403
    assert images("GET", "/tasks/1", token=ADMIN).status_code == 404
    assert images("POST", "/tasks", {"type": "import"}, ADMIN).status_code == 501
    (shown,) = images("GET", "/info/stores").json["stores"]
    assert shown["id"] == "local"
    assert images("GET", "/info/stores/detail").status_code == 403
    (detailed,) = images("GET", "/info/stores/detail", token=ADMIN).json["stores"]
    assert shown.items() <= detailed.items()
    assert (detailed["type"], detailed["properties"]["data_dir"]) == ("file", str(images.store))


def test_usage_of_a_project_counts_its_own_images(images: ImageService) -> None:
    def used() -> dict[str, tuple[int, int]]:
        shown = images("GET", "/info/usage").json["usage"]
        return {name: (item["usage"], item["limit"]) for name, item in shown.items()}

    options = images.conf.image
    assert used() == {
        "image_size_total": (0, options.image_size_total),
        "image_stage_total": (0, -1),
        "image_count_total": (0, options.image_count_total),
        "image_count_uploading": (0, options.uploads_per_project),
    }
    images.conf.set_override("image_count_total", 5, "image")
    images.conf.set_override("image_size_total", 10, "image")
    body = {"name": "i", "disk_format": "raw", "container_format": "bare", "visibility": "community"}
    whole, staged = images.made("/images", body)["id"], images.made("/images", body)["id"]
    images.made("/images", body, STRANGER)
    images("PUT", f"/images/{whole}/file", b"x" * 2**20)
    images("PUT", f"/images/{staged}/stage", b"x" * 2**20)
    assert used()["image_size_total"] == (2, 10) and used()["image_count_total"] == (2, 5)
    assert used()["image_stage_total"] == (1, -1) and used()["image_count_uploading"][0] == 1
