"""Texts of errors in the user's language, and their catalogues."""

from __future__ import annotations

import re
from typing import Any

import pytest
import webob

from nova_lite.api.http import languages
from nova_lite.base import exceptions
from nova_lite.rpc import in_process
from tests.support.api_client import Client
from tests.support.every_api import EveryApi

ID = "9b2e1c4a-0000-4000-8000-000000000001"
ENGLISH = f"Instance {ID} could not be found."
GERMAN = f"Instanz {ID} wurde nicht gefunden."
CHINESE = f"找不到实例 {ID}。"
PLACEHOLDER = re.compile(r"%\(\w+\)\w")


def formats() -> set[str]:
    """Return the formats with words of all errors that an API returns."""
    found = [kind for kind in vars(exceptions).values() if isinstance(kind, type) and hasattr(kind, "msg_fmt")]
    return {kind.msg_fmt for kind in found if kind.code != 500 and re.search(r"\w", PLACEHOLDER.sub("", kind.msg_fmt))}


@pytest.mark.parametrize("locale", ["de", "zh_CN"])
def test_catalogue_has_each_format_with_its_placeholders(locale: str) -> None:
    catalogue = languages.catalogue(locale)
    assert set(catalogue) == formats()
    wrong = [
        english
        for english, text in catalogue.items()
        if text == english
        or set(PLACEHOLDER.findall(text)) != set(PLACEHOLDER.findall(english))
        or text != text.strip()
    ]
    assert wrong == []


@pytest.mark.parametrize("locale", ["de", "zh_CN"])
def test_reader_finds_each_entry_of_a_catalogue(locale: str) -> None:
    lines = (languages.LOCALES / locale / "LC_MESSAGES/nova_lite.po").read_text().splitlines()
    assert len(languages.catalogue(locale)) == lines.count("") > 200
    assert not [line for line in lines if re.match(r"#, .*fuzzy|#~", line)]


def test_each_catalogue_has_a_tag() -> None:
    assert {path.name for path in languages.LOCALES.iterdir()} == set(languages.CATALOGUES.values())


@pytest.mark.parametrize(
    ("accepted", "language", "message"),
    [
        (None, None, ENGLISH),
        ("", None, ENGLISH),
        ("not a language;;", None, ENGLISH),
        ("fr, *;q=0.5", None, ENGLISH),
        ("en-US, de;q=0.9", None, ENGLISH),
        ("de;q=0", None, ENGLISH),
        ("de", "de", GERMAN),
        ("de-AT, en;q=0.9", "de", GERMAN),
        ("fr, zh-CN;q=0.8, de;q=0.7", "zh-CN", CHINESE),
        ("zh", "zh", CHINESE),
    ],
)
def test_compute_api_error_is_in_the_preferred_language(
    api: Client, accepted: str | None, language: str | None, message: str
) -> None:
    headers = {} if accepted is None else {"Accept-Language": accepted}
    response = api("GET", f"/servers/{ID}", headers=headers)
    assert response.json == {"itemNotFound": {"code": 404, "message": message}}
    assert response.headers.get("Content-Language") == language
    assert response.headers["Vary"] == "OpenStack-API-Version, X-OpenStack-Nova-API-Version, Accept-Language"


def test_refused_version_is_in_the_preferred_language(api: Client) -> None:
    message = "Die API unterstützt die Version 2.500 nicht. Die kleinste ist 2.1, die größte 2.104."
    for path in ("/flavors", "/"):
        response = api("GET", path, version="2.500", headers={"Accept-Language": "de"})
        assert response.json["computeFault"] == {"code": 406, "message": message}
        assert response.headers["Vary"].endswith("Accept-Language")


def test_success_does_not_vary_by_language(api: Client) -> None:
    headers = api("GET", "/flavors", headers={"Accept-Language": "de"}).headers
    assert "Content-Language" not in headers
    assert "Accept-Language" not in headers["Vary"]


@pytest.mark.parametrize(
    ("service", "path"),
    [("compute", "/servers/x"), ("volume", "/volumes/x"), ("network", "/networks/x"), ("image", "/images/x")],
)
def test_error_of_each_service_is_in_the_preferred_language(cloud: EveryApi, service: str, path: str) -> None:
    response = cloud.send(service, "GET", path, headers={"HTTP_ACCEPT_LANGUAGE": "de"})
    assert response.status_code == 404
    assert re.search(r" x wurde nicht gefunden\.", response.text)
    assert response.headers["Content-Language"] == "de"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (exceptions.InstanceNotFound(instance_id=ID), GERMAN),
        (in_process.received((None, exceptions.InstanceNotFound(instance_id=ID), None)), GERMAN),
        (exceptions.InstanceNotFound("Its own text", instance_id=ID), None),
        (exceptions.InstanceNotFound("Its own text"), None),
        (exceptions.ValidationError(detail="min_count must be <= max_count"), None),
    ],
)
def test_text_is_translated_if_it_has_the_format_of_its_class(error: Any, text: str | None) -> None:
    assert languages.translation(error, "de") == text


def test_error_that_is_shared_by_callers_keeps_its_text() -> None:
    error = exceptions.InstanceNotFound(instance_id=ID)
    said: list[str] = []
    for accepted in ("de", "zh-CN", "en"):

        def respond(localized: exceptions.InstanceNotFound) -> Any:
            said.append(localized.message)
            return webob.Response()

        languages.localized({"HTTP_ACCEPT_LANGUAGE": accepted}, error, respond)
    assert said == [GERMAN, CHINESE, ENGLISH]
