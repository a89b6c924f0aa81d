"""The model names functions that nova_lite has."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.model import compute, conductor
from tests.model.protections import PROTECTIONS

MODELS = Path(__file__).parent
CODE = MODELS.parents[1] / "nova_lite"

#: Functions of the model that put steps together or describe states.
OWN = {
    "steps",
    "problem",
    "deliver",
    "crash",
    "_deliver_to_conductor",
    "_failed_spawns",
    "_failures",
    "_name",
    "_put",
    "_report",
    "_with",
}

PLACES = {
    **{f"conductor.{name}": place for name, place in conductor.FUNCTIONS.items()},
    **{f"compute.{name}": place for name, place in compute.FUNCTIONS.items()},
    **{f"protection: {item.rule}": item.code for item in PROTECTIONS},
}


@functools.cache
def names_of(path: Path) -> frozenset[str]:
    """Return the names of all classes and functions of a module, including methods and nested functions."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef))


def labels(path: Path) -> list[str]:
    """Return the constant texts of the labels that a module's generators yield."""
    yields = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Yield)]
    texts = [item for node in yields if node.value is not None for item in ast.walk(node.value)]
    return [item.value for item in texts if isinstance(item, ast.Constant) and isinstance(item.value, str)]


@pytest.mark.parametrize("place", PLACES)
def test_model_names_functions_of_the_modules_that_it_names(place: str) -> None:
    for part in PLACES[place].split("; "):
        module, _, names = part.partition(": ")
        if module.endswith(".py"):
            assert (CODE / module).exists(), module
            known = names_of(CODE / module)
            assert [name for name in names.split(", ") if re.fullmatch(r"\w+", name) and name not in known] == []


@pytest.mark.parametrize("model", [conductor, compute], ids=["conductor", "compute"])
def test_each_function_of_the_model_names_its_code(model: ModuleType) -> None:
    path = Path(str(model.__file__))
    top = {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}
    assert top - OWN == set(model.FUNCTIONS)


@pytest.mark.parametrize("path", sorted(MODELS.glob("[a-z]*.py")), ids=lambda path: path.name)
def test_labels_of_the_model_name_functions_that_exist(path: Path) -> None:
    known = frozenset().union(*map(names_of, CODE.rglob("*.py")))
    words = {word for label in labels(path) for word in re.findall(r"\b_?[a-z]+(?:_[a-z]+)+\b|\b_[a-z]+\b", label)}
    assert words - known == set()


def test_there_are_labels_to_check() -> None:
    found = " ".join(label for name in ("conductor", "compute") for label in labels(MODELS / f"{name}.py"))
    assert {"_expire", "record_offline", "finish_build", "fence_instance"} <= set(re.findall(r"\w+", found))
