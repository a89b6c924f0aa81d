"""Pages of lists: an order that is total on every database, and the rows after a marker.

NULL counts as the smallest value. The conditions spell that out, because the databases disagree about it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.ext.compiler import compiles

from nova_lite.base import exceptions
from nova_lite.objects import ListQuery

DIRECTIONS = ("asc", "desc")

Row = TypeVar("Row")


def start(marker: str | None, find: Callable[[str], Row | None]) -> Row | None:
    """Return the last row of the previous page, as ``find`` knows it. Raises `MarkerNotFound` if it is gone."""
    row = None if marker is None else find(marker)
    if marker is not None and row is None:
        raise exceptions.MarkerNotFound(marker=marker)
    return row


def by_id(
    query: sa.Select[Any],
    key: orm.InstrumentedAttribute[str],
    cases: Sequence[sa.ColumnElement[bool]],
    page: ListQuery,
) -> sa.Select[Any]:
    """Return ``query`` for the rows of one page, in the order of their ids. ``cases``: as `Order.page_of` has them."""
    order = Order({key.key: key}, [key.key], ["desc" if page.backwards else "asc"], tie_breaker=key)
    marker = None if page.marker is None else SimpleNamespace(**{key.key: page.marker})
    return order.page_of(query, key, cases, marker, page.limit)


class Equal(sa.sql.functions.FunctionElement[bool]):
    """Condition "a column has this value", for the columns with which an index begins that `Order` then reads on.

    MariaDB reads all rows of an equal value rather than those beyond a marker, even by an index of both columns. So it
    gets the value as a range.
    """

    type = sa.types.NULLTYPE  # type: ignore[assignment]  # SQLite would compare a function of type Boolean with 1.
    inherit_cache = True


@compiles(Equal)
def _equal(element: Equal, compiler: Any, **keywords: Any) -> str:
    column, value = element.clauses
    return f"{compiler.process(column == value, **keywords)}"


@compiles(Equal, "mysql", "mariadb")
def _equal_as_range(element: Equal, compiler: Any, **keywords: Any) -> str:
    column, value = element.clauses
    bound = sa.literal_column("false") if isinstance(value, sa.False_) else value
    return f"({compiler.process(sa.and_(column >= bound, column <= bound), **keywords)})"


class Order:
    """Total order of a list.

    ``keys`` are names in ``allowed`` (name to column); ``dirs`` is "asc" or "desc" for each, and missing ones repeat
    the first. ``tie_breaker`` is a unique column, sorted in the direction of the last key.
    """

    def __init__(
        self,
        allowed: Mapping[str, orm.InstrumentedAttribute[Any]],
        keys: Sequence[str],
        dirs: Sequence[str],
        tie_breaker: orm.InstrumentedAttribute[Any],
    ) -> None:
        unknown = next((key for key in keys if key not in allowed), None)
        if unknown is not None:
            raise exceptions.InvalidSortKey(key=unknown, valid=", ".join(sorted(allowed)))
        if len(dirs) > len(keys):
            raise exceptions.InvalidInput(reason="Sort direction size exceeds sort key size")
        wrong = next((word for word in dirs if word not in DIRECTIONS), None)
        if wrong is not None:
            raise exceptions.InvalidInput(reason=f"Unknown sort direction {wrong!r}, must be one of: asc, desc")
        padded = [*dirs, *[dirs[0] if dirs else "asc"] * (len(keys) - len(dirs))]
        chosen = dict(zip((allowed[key] for key in keys), padded, strict=True))
        chosen.setdefault(tie_breaker, padded[-1] if padded else "asc")
        self._terms = list(chosen.items())

    def page(
        self,
        query: sa.Select[Any],
        marker: Any | None,
        limit: int | None,
        fixed: Sequence[orm.InstrumentedAttribute[Any]] = (),
    ) -> sa.Select[Any]:
        """Return ``query`` in this order, starting after ``marker`` (a row of the same model), with at most ``limit``
        rows. ``fixed``: columns that have one value in all of its rows, by `Equal`.
        """
        terms: list[tuple[Any, str]] = [(column, self._terms[0][1]) for column in fixed]
        terms += [term for column, direction in self._terms for term in _null_first(column, direction)]
        if marker is not None:
            query = query.where(self._after(marker))
        query = query.order_by(*(term.desc() if direction == "desc" else term.asc() for term, direction in terms))
        return query if limit is None else query.limit(limit)

    def page_of(
        self,
        query: sa.Select[Any],
        key: orm.InstrumentedAttribute[str],
        cases: Sequence[sa.ColumnElement[bool]],
        marker: Any | None,
        limit: int | None,
    ) -> sa.Select[Any]:
        """Return `page` of the rows that meet one of ``cases``. No row may meet two of them.

        Each case is read in order by its own index. A condition joined by "or" would read and sort all its rows.
        ``key``: the unique column by which the rows are found again.
        """
        if len(cases) == 1 or limit is None:
            return self.page(query.where(sa.or_(*cases)), marker, limit)
        pages = [self.page(sa.select(key.label("key")).where(case), marker, limit).subquery() for case in cases]
        found = sa.union_all(*(sa.select(page.c.key) for page in pages)).subquery()
        return self.page(query.join(found, found.c.key == key), None, limit)

    def _after(self, marker: Any) -> sa.ColumnElement[bool]:
        """Build the condition "some key is beyond the marker's while all keys before it are equal".

        A bound of the first key alone lets an index begin there.
        """
        first, direction = self._terms[0]
        bound = sa.literal(getattr(marker, first.key), first.type)
        start: list[sa.ColumnElement[bool]] = []
        if len(self._terms) > 1 and not first.expression.nullable:
            start.append(first >= bound if direction == "asc" else first <= bound)
        ways: list[sa.ColumnElement[bool]] = []
        equal: list[sa.ColumnElement[bool]] = []
        for column, direction in self._terms:
            value = getattr(marker, column.key)
            ways.append(sa.and_(*equal, _beyond(column, direction, value)))
            equal.append(column.is_(None) if value is None else column == value)
        return sa.and_(*start, sa.or_(*ways))


def _null_first(column: orm.InstrumentedAttribute[Any], direction: str) -> list[tuple[sa.ColumnElement[Any], str]]:
    own = (sa.type_coerce(column, column.type), direction)
    if not column.expression.nullable:
        return [own]
    return [(sa.case((column.is_(None), 0), else_=1), direction), own]


def _beyond(column: orm.InstrumentedAttribute[Any], direction: str, value: Any) -> sa.ColumnElement[bool]:
    if value is None:
        return column.is_not(None) if direction == "asc" else sa.false()
    bound = sa.literal(value, column.type)
    if direction == "asc":
        return column > bound
    return sa.or_(column < bound, column.is_(None)) if column.expression.nullable else column < bound
