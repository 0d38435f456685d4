"""What is known of every storage: digests of its tensors, which operator wrote them, and whether anything did.

A storage is known by its address, which no other one gets while a weak reference to it is held.
"""

from torch.multiprocessing.reductions import StorageWeakRef

from tracer.digest import digest

PURGED_EVERY = 4096  # new storages


class State:
    """Of one storage. What is known of its tensors holds until an operator writes to it."""

    def __init__(self, storage):
        self.alive = StorageWeakRef(storage)
        self.blank = False  # it was allocated, and nothing has written to it
        self.last = None  # (operator, slot) that wrote to it last, through whichever tensor
        self.digests, self.made = {}, {}  # by geometry: digest, (operator, slot)

    def written(self, source):
        self.blank, self.last = False, source
        self.digests, self.made = {}, {}


def geometry(tensor):
    return (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg())


class Storages:
    def __init__(self):
        self.states = {}
        self.new = 0

    def of(self, tensor):
        """The state of a tensor's storage, and whether it was known; (None, False) of what has no storage."""
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):
            return None, False
        key = storage._cdata
        state = self.states.get(key)
        if state is not None:
            return state, True
        state = self.states[key] = State(storage)
        self.new += 1
        if self.new % PURGED_EVERY == 0:
            self.states = {key: state for key, state in self.states.items() if not state.alive.expired()}
        return state, False

    def digest(self, tensor):
        """Of a tensor as it is now; "" where nothing has written it, or it is not dense."""
        state, _ = self.of(tensor)
        if state is None or state.blank:
            return ""
        place = geometry(tensor)
        if place not in state.digests:
            state.digests[place] = digest(tensor)
        return state.digests[place]

    def source(self, tensor):
        """[operator, slot] that made or wrote a tensor; None where no operator that was recorded did."""
        state, _ = self.of(tensor)
        return None if state is None else state.made.get(geometry(tensor), state.last)
