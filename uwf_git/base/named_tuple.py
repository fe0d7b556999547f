"""`NamedTuple` as that of `typing`, which compiles the text of each annotation when a class is made: a thousand in the
modules of a step, a tenth of its time. Here the texts stay texts, since only the type checker needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from collections import namedtuple

    class _Meta(type):
        def __new__(cls, name: str, _bases: tuple[type, ...], body: dict[str, Any]) -> type:
            fields = body.pop("__annotations__", {})
            defaults = [body.pop(field) for field in fields if field in body]
            kind = namedtuple(name, fields, defaults=defaults, module=body.pop("__module__"))
            kind.__annotations__ = fields
            for key, value in body.items():
                setattr(kind, key, value)
            return kind

    NamedTuple = type.__new__(_Meta, "NamedTuple", (), {})
