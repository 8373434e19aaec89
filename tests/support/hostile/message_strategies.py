"""Hypothesis strategies for every message on the wire, made from the messages' own types."""

import string
from typing import Any

import msgspec
from hypothesis import strategies as st

from shared.tracing.context import begin_trace
from shared.wire import fields

NAMES = st.text(string.ascii_letters + string.digits, min_size=1, max_size=fields.MAX_ID_CHARS)
TRACEPARENTS = st.integers(0, 2**192 - 1).map(lambda randomness: begin_trace(None, randomness).traceparent(0))


def any_of(message: type[Any]) -> st.SearchStrategy[Any]:
    """Every value that the type allows, a union's or a Struct's."""
    return _values(msgspec.inspect.type_info(message))


def _values(info: Any) -> st.SearchStrategy[Any]:
    info = info.type if isinstance(info, msgspec.inspect.Metadata) else info
    match info:
        case msgspec.inspect.UnionType():
            return st.one_of([_values(part) for part in info.types])
        case msgspec.inspect.StructType():
            fields = {field.name: _values(field.type) for field in info.fields}
            return st.builds(info.cls, **fields)
        case msgspec.inspect.VarTupleType():
            return st.lists(_values(info.item_type), max_size=min(info.max_length or 3, 3)).map(tuple)
        case msgspec.inspect.DictType():
            return st.dictionaries(_values(info.key_type), _values(info.value_type), max_size=3)
        case msgspec.inspect.LiteralType():
            return st.sampled_from(info.values)
        case _:
            return _scalars(info)


def _scalars(info: Any) -> st.SearchStrategy[Any]:
    match info:
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.IntType():
            low = -fields.MAX_INTEGER if info.ge is None else info.ge
            return st.integers(low, fields.MAX_INTEGER if info.le is None else info.le)
        case msgspec.inspect.FloatType():
            low = info.ge if info.ge is not None else info.gt
            return st.floats(low, info.le, exclude_min=info.gt is not None, allow_nan=False, allow_infinity=False)
        case msgspec.inspect.StrType(pattern=str()):
            return TRACEPARENTS if "32" in info.pattern else NAMES
        case msgspec.inspect.StrType():
            return st.text(min_size=info.min_length or 0, max_size=min(info.max_length or 20, 20))
    raise AssertionError(f"no strategy for {info}")
