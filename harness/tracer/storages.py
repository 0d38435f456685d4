"""What is known of every storage: digests of its tensors, which operator wrote them, and whether anything did.

A storage is known by its address, which no other one gets while a weak reference to it is held.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

from torch.multiprocessing.reductions import StorageWeakRef

from .digest import digest

Source = Optional[Tuple[int, int]]  # operator, and which of its outputs
PURGED_EVERY = 4096  # new storages


class State:
    """Of one storage. What is known of its tensors holds until an operator writes to it."""

    def __init__(self, storage: Any) -> None:
        self.alive = StorageWeakRef(storage)
        self.blank = False  # it was allocated, and nothing has written to it
        self.shared = False  # with numpy or another library, which writes unseen
        self.last: Source = None  # (operator, slot) that wrote to it last, through whichever tensor
        self.digests: dict[Any, str] = {}  # by geometry
        self.made: dict[Any, Source] = {}

    def written(self, source: Source) -> None:
        self.blank, self.last = False, source
        self.digests, self.made = {}, {}


def geometry(tensor: Any) -> Any:
    return (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg())


class Storages:
    def __init__(self) -> None:
        self.states: dict[int, State] = {}
        self.new = 0

    def of(self, tensor: Any) -> State | None:
        """The state of a tensor's storage; None of what has no storage."""
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):
            return None
        key = storage._cdata
        state = self.states.get(key)
        if state is not None:
            return state
        state = self.states[key] = State(storage)
        self.new += 1
        if self.new % PURGED_EVERY == 0:
            self.states = {key: state for key, state in self.states.items() if not state.alive.expired()}
        return state

    def known(self, tensor: Any) -> State | None:
        """Its state, if it has one already."""
        try:
            return self.states.get(tensor.untyped_storage()._cdata)
        except (RuntimeError, NotImplementedError):
            return None

    def allocated(self, tensor: Any) -> None:
        """A new tensor that nothing has written."""
        state = self.of(tensor)
        if state is not None:
            state.blank = True

    def digest(self, tensor: Any) -> str:
        """Of a tensor as it is now; "" where nothing has written it."""
        state = self.of(tensor)
        if state is None:  # sparse tensors have no storage
            return digest(tensor)
        if state.blank:
            return ""
        if state.shared or state.last is None:  # what no recorded operator wrote may be numpy's own
            return digest(tensor)
        place = geometry(tensor)
        if place not in state.digests:
            state.digests[place] = digest(tensor)
        return state.digests[place]

    def share(self, tensor: Any) -> None:
        """From now on others may write to a tensor's memory."""
        state = self.of(tensor)
        if state is not None:
            state.shared = True

    def source(self, tensor: Any) -> Source:
        """[operator, slot] that made or wrote a tensor; None where no operator that was recorded did."""
        state = self.of(tensor)
        return None if state is None else state.made.get(geometry(tensor), state.last)
