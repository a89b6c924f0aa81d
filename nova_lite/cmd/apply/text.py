"""Plans as text: one row for each thing, with what it costs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from nova_lite.cmd.apply.effects import effects
from nova_lite.cmd.apply.plan import Key, Op, Step

#: Characters of a value. Longer ones are cut.
_MAX_VALUE = 60
_SIGNS = {"create": "+", "change": "~", "replace": "-/+", "delete": "-"}


def rows(steps: Sequence[Step]) -> Iterator[str]:
    """Yield the lines of a plan, in the order of its steps. A replacement has one row, at its deletion."""
    for step in _with_rows(steps):
        word = word_of(step)
        yield f"  {_SIGNS[word]:>3} {word} {title(step.key)}{_reason(step)}"
        if word != "replace" or step.cause is None:
            yield from (f"        {line}" for line in _changes(step))
        yield from (f"        {line}" for line in effects(step))


def _with_rows(steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if not (step.implied or (step.op == Op.CREATE and step.is_replacement))]


def word_of(step: Step) -> str:
    return "replace" if step.is_replacement else {Op.UPDATE: "change"}.get(step.op, step.op.value)


def title(key: Key) -> str:
    """Return kind and name, without control characters, which names in some clouds may have."""
    return "".join(character if character.isprintable() else "?" for character in " ".join(key))


def summary(steps: Sequence[Step]) -> str:
    """Return the numbers of things by what becomes of them."""
    counts = Counter(map(word_of, _with_rows(steps)))
    return ", ".join(f"{counts[word]} to {word}" for word in _SIGNS)


def _reason(step: Step) -> str:
    return f", because {title(step.cause)} is replaced or deleted" if step.cause is not None else ""


def _changes(step: Step) -> Iterator[str]:
    """Yield the values that differ."""
    if step.before is None or step.after is None:
        return
    for name in step.changed:
        before, after = step.before.values.get(name), step.after.values[name]
        if isinstance(before, dict) and isinstance(after, dict):
            for item in sorted(before.keys() | after.keys()):
                if before.get(item) != after.get(item):
                    yield f"{name}.{item}: {_shown(before.get(item))} -> {_shown(after.get(item))}"
        else:
            yield f"{name}: {_shown(before)} -> {_shown(after)}"


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}…"
