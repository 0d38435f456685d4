"""What is known of every storage: digests of its tensors, which operator wrote them, and whether anything did.

A storage is known by its address, which no other storage gets while a weak reference to it is held.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Tuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import _disable_current_modes

from .digest import digest

Slot = Tuple[int, int]  # an operator's index, and which of its outputs
PURGE_EVERY = 4096  # new storages
LENDING = ("numpy", "data_ptr", "__dlpack__")  # methods that hand a tensor's memory out


class StorageState:
    """What is known of one storage. It holds until an operator writes to the storage."""

    def __init__(self, storage: Any) -> None:
        self.alive = StorageWeakRef(storage)
        self.is_blank = False  # it was allocated, and nothing has written to it
        self.is_shared = False  # with numpy or another library, which writes unseen
        self.writer: Slot | None = None  # that wrote to it last, through whichever tensor
        self.digests: dict[Any, str] = {}  # by geometry
        self.makers: dict[Any, Slot] = {}  # by geometry

    def write(self, writer: Slot) -> None:
        """Forget what was known; from now on it is this output."""
        self.is_blank, self.writer = False, writer
        self.digests, self.makers = {}, {}


def geometry(tensor: Any) -> Any:
    """Return what tells one tensor of a storage from another."""
    return (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg())


class Storages:
    """The state of every storage that the recorder has seen."""

    def __init__(self) -> None:
        self.states: dict[int, StorageState] = {}
        self.count = 0

    def find(self, tensor: Any) -> StorageState | None:
        """Return the state of a tensor's storage; None where it has no storage."""
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):
            return None
        state = self.states.get(storage._cdata)
        if state is None:
            state = self.states[storage._cdata] = StorageState(storage)
            self.count += 1
            if self.count % PURGE_EVERY == 0:
                self.states = {key: state for key, state in self.states.items() if not state.alive.expired()}
        return state

    def digest(self, tensor: Any) -> str:
        """Return the digest of a tensor as it is now; '' where nothing has written it."""
        state = self.find(tensor)
        if state is None:  # sparse tensors have no storage
            return digest(tensor)
        if state.is_blank:
            return ""
        if state.is_shared or state.writer is None:  # what no recorded operator wrote may be numpy's own
            return digest(tensor)
        place = geometry(tensor)
        if place not in state.digests:
            state.digests[place] = digest(tensor)
        return state.digests[place]

    def find_source(self, tensor: Any) -> Slot | None:
        """Return the output that made or wrote a tensor; None where no operator that was recorded did."""
        state = self.find(tensor)
        return None if state is None else state.makers.get(geometry(tensor), state.writer)


class Methods:
    """Replacements, until `restore`, of methods of a tensor that the recorder must know of and sees no operator of."""

    def __init__(self, storages: Storages) -> None:
        self.storages = storages
        self.originals = {name: vars(torch.Tensor).get(name) for name in (*LENDING, "as_subclass")}
        for name in LENDING:
            setattr(torch.Tensor, name, self._share_before(getattr(torch.Tensor, name)))
        torch.Tensor.as_subclass = _call_unseen(torch.Tensor.as_subclass)

    def restore(self) -> None:
        """Bring the methods back."""
        for name, method in self.originals.items():
            if method is None:  # its base class has it
                delattr(torch.Tensor, name)
            else:
                setattr(torch.Tensor, name, method)

    def _share_before(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method, which first marks the storage: others may write to it from now on."""

        @functools.wraps(method)
        def share(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            state = self.storages.find(tensor)
            if state is not None:
                state.is_shared = True
            return method(tensor, *args, **kwargs)

        return share


def _call_unseen(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method without the recorder: its alias may not be an object of Python's before it is of the
    subclass."""

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return method(*args, **kwargs)

    return call
