"""Fallbacks of RPC methods, for a server that is too old for them (``fallback`` of `nova_lite.rpc.method`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from nova_lite.base import exceptions


def result(value: Any) -> Callable[..., Any]:
    """Return a fallback that sends nothing and returns ``value``."""

    def fallback(client: Any, *args: Any, **kwargs: Any) -> Any:
        return value

    return fallback


def one_by_one(items: str, send: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Return a fallback of a batch method that sends its items one by one.

    ``items``: the argument that holds the batch. ``send(client, ..., item)``: sends one item; it takes the batch
    method's other arguments by name, as far as it names them, and the item last. Every item is sent, whatever becomes
    of the others. The fallback then returns the results, in order, or raises an error of an item.
    """
    names = list(inspect.signature(send).parameters)[1:-1]

    def fallback(client: Any, **values: Any) -> list[Any]:
        shared = [values[name] for name in names]
        results: list[Any] = []
        failures: list[Exception] = []
        for item in values[items]:
            try:
                results.append(send(client, *shared, item))
            except exceptions.NovaLiteException as error:
                failures.append(error)
        if failures:
            # An error that the caller retries comes first: else the caller would give up on the whole batch.
            raise next((e for e in failures if isinstance(e, exceptions.ServiceUnavailable)), failures[0])
        return results

    # `contract_of` compares these names with the method's arguments.
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in (*names, items)]
    client = inspect.Parameter("client", inspect.Parameter.POSITIONAL_ONLY)
    others = inspect.Parameter("others", inspect.Parameter.VAR_KEYWORD)
    fallback.__signature__ = inspect.Signature([client, *parameters, others])  # type: ignore[attr-defined]
    return fallback
