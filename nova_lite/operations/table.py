"""The table of operations: a frozen mapping, with everything that is derived from all definitions."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping

from nova_lite.operations.types import HostStep, Operation


class OperationTable(Mapping[str, Operation]):
    """Definitions by kind. It cannot change, so that what is derived from it is computed once.

    ``command_methods``: by RPC method of the compute service, a step that this method carries out. Builds and fences
    are not among them, because their methods take other arguments.
    """

    def __init__(self, definitions: Iterable[Operation]) -> None:
        self._by_kind = {definition.kind: definition for definition in definitions}
        self.command_methods: Mapping[str, HostStep] = types.MappingProxyType(
            {
                step.method: step
                for definition in self.with_variants()
                for step in definition.all_steps()
                if isinstance(step, HostStep) and step.is_sequenced
            }
        )

    def __getitem__(self, kind: str) -> Operation:
        return self._by_kind[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_kind)

    def __len__(self) -> int:
        return len(self._by_kind)

    def with_variants(self) -> Iterator[Operation]:
        """Yield each definition, followed by its variants."""
        for definition in self._by_kind.values():
            yield definition
            for _, _, variant in definition.variants:
                yield variant

    def extended(self, *definitions: Operation) -> OperationTable:
        """Return a table that has these definitions as well."""
        return OperationTable([*self._by_kind.values(), *definitions])
