"""A quick look at a whole input, made from its schema: it says True of valid inputs only, and of nearly all of those.

pydantic checks objects one by one and copies each. The small objects that an input has by the thousand are laid out in
columns here, one for each member, and pydantic checks a column at a time against what the schema says of that member.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any

from pydantic_core import SchemaValidator, core_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from ranking_evaluate.core.canonical import JsonValue


def acceptance(schema: Any) -> Callable[[JsonValue], bool]:  # noqa: ANN401 - pydantic's schemas are of many shapes.
    """Return a function that says True only of JSON values that a pydantic core schema accepts.

    It may say False of a valid value too; the schema itself decides then, and says what is wrong.
    """
    tables: list[_Table] = []
    shallow = SchemaValidator(_without_tables(schema, (), tables))

    def accepts(value: JsonValue) -> bool:
        if not shallow.isinstance_python(value):
            return False
        for table in tables:  # noqa: SIM110 - a generator costs more than the whole loop.
            if not table.accepts(value):
                return False
        return True

    return accepts


def _without_tables(schema: Any, path: tuple[str, ...], tables: list[_Table]) -> Any:  # noqa: ANN401
    """Return a schema that says nothing about the objects of each table within, and list the tables."""
    match schema:
        case {"type": "list", "items_schema": {"type": "typed-dict"} as row}:
            if _is_table(row):
                tables.append(_Table(path, row))
                return {**schema, "items_schema": core_schema.any_schema()}
            return {**schema, "items_schema": _without_tables(row, path, tables)}
        case {"type": "typed-dict", "fields": fields}:
            changed = {
                name: {**field, "schema": _without_tables(field["schema"], (*path, name), tables)}
                for name, field in fields.items()
                # One object within another adds nothing to the number of rows.
                if field["schema"]["type"] != "typed-dict"
            }
            # An object with too many members is left before pydantic has a word about each.
            few = core_schema.dict_schema(max_length=len(fields), strict=True)
            return core_schema.chain_schema([few, {**schema, "fields": {**fields, **changed}}])
        case {"type": "definitions", "schema": within} | {"type": "nullable", "schema": {"type": "list"} as within}:
            return {**schema, "schema": _without_tables(within, path, tables)}
        case _:
            return schema


def _is_table(schema: Any) -> bool:  # noqa: ANN401
    """Return whether objects have exactly these members, and only simple ones, so that columns tell all about them."""
    members = [field["schema"]["type"] for field in schema["fields"].values() if field["required"]]
    return (
        schema["extra_behavior"] == "forbid"
        and len(members) == len(schema["fields"])
        and {"list", "typed-dict", "definition-ref"}.isdisjoint(members)
    )


class _Table:
    """All objects that stand in one kind of array, wherever such an array is.

    Args:
        path: The names of the arrays that lead there, the last one's own included.
        schema: That of the objects.
    """

    def __init__(self, path: tuple[str, ...], schema: Any) -> None:  # noqa: ANN401
        self._path = path
        self._members = [itemgetter(name) for name in schema["fields"]]
        columns: list[Any] = [
            core_schema.list_schema(field["schema"], fail_fast=True) for field in schema["fields"].values()
        ]
        self._columns = SchemaValidator(core_schema.tuple_schema(columns), schema["config"])

    def accepts(self, value: Any) -> bool:  # noqa: ANN401
        """Return whether every object of the table in a value is valid, whose arrays are known to be such."""
        rows = [value]
        for name in self._path:
            # An array may be absent or null.
            rows = [inner for row in rows for inner in row.get(name) or ()]
        try:
            columns = tuple([[*map(member, rows)] for member in self._members])
            # Each row has every member, so one that has others too makes it more of them in all.
            are_closed = sum(map(len, rows)) == len(rows) * len(columns)
        except (KeyError, TypeError):
            # A member is absent, or something stands there that has no members.
            return False
        return are_closed and self._columns.isinstance_python(columns)
