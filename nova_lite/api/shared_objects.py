"""Objects of the conductor's replies that requests share, with the views that were made of them.

An object is found by its whole text in the reply, so a changed object is another one. Each request still goes to the
conductor: it alone decides which objects a caller may see. What is saved is the work to decode an object and to make
its views.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import msgspec

from nova_lite.objects import Flavor, Instance
from nova_lite.objects.ready import prepare_decoders

T = TypeVar("T")
F = TypeVar("F", bound=Hashable)

#: Name, in the ``__dict__`` of a shared object, of its views by their form.
_VIEWS = "views"
#: Forms of one object that are kept. Most objects have one reader, who uses one version of the API.
MAX_FORMS = 4
#: Memory of a shared object besides its text and the texts of its views.
_OBJECT_BYTES = 4096


class SharedInstance(Instance, frozen=True, dict=True):  # type: ignore[misc] # which msgspec allows
    """Instance that several requests use. It must not be changed."""


class SharedFlavor(Flavor, frozen=True, dict=True):  # type: ignore[misc]
    """Flavor that several requests use. It must not be changed."""


prepare_decoders(SharedInstance, SharedFlavor)


class SharedObjects(Generic[T]):
    """Objects of one type by their texts. Beyond ``max_bytes``, the least recently used objects are dropped.

    ``kind`` is a frozen `msgspec.Struct` with a ``__dict__``.
    """

    def __init__(self, kind: type[T], max_bytes: int) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        self._left = max_bytes
        self._objects: OrderedDict[bytes, T] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, raw: msgspec.Raw) -> T:
        """Return the object of this text."""
        text = bytes(raw)
        with self._lock:
            shared = self._objects.get(text)
            if shared is not None:
                self._objects.move_to_end(text)
                return shared
        made = self._decoder.decode(text)
        made.__dict__[_VIEWS] = {}
        with self._lock:
            shared = self._objects.setdefault(text, made)
            if shared is made:
                self._left -= _cost(text)
            while self._left < 0:
                oldest, _ = self._objects.popitem(last=False)
                self._left += _cost(oldest)
        return shared


def view(value: T, form: F, make: Callable[[T, F], Any]) -> Any:
    """Return ``make(value, form)``: as a JSON text, which is kept if the object is shared, else as it is.

    The result may depend on nothing else than these two.
    """
    views: dict[Any, msgspec.Raw] | None = getattr(value, "__dict__", {}).get(_VIEWS)
    if views is None:
        return make(value, form)
    key = make, form
    text = views.get(key)
    if text is None:
        text = msgspec.Raw(msgspec.json.encode(make(value, form)))
        if len(views) >= MAX_FORMS:
            views.clear()
        views[key] = text
    return text


def _cost(text: bytes) -> int:
    """Return the memory of a shared object. A view is about as long as the text."""
    return _OBJECT_BYTES + len(text) * (1 + MAX_FORMS)
