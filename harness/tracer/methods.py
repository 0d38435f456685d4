"""Methods of a tensor that the recorder must know of, and sees no operator of."""

from __future__ import annotations

import functools
from typing import Any, Callable

import torch
from torch.utils._python_dispatch import _disable_current_modes

from .storages import Storages

LENDING = ("numpy", "data_ptr", "__dlpack__")  # hand a tensor's memory out


class Methods:
    """Stand in their place until `remove`."""

    def __init__(self, storages: Storages) -> None:
        self.own = {name: vars(torch.Tensor).get(name) for name in (*LENDING, "as_subclass")}
        for name in LENDING:
            setattr(torch.Tensor, name, _marking(getattr(torch.Tensor, name), storages))
        torch.Tensor.as_subclass = _unseen(torch.Tensor.as_subclass)

    def remove(self) -> None:
        for name, method in self.own.items():
            if method is None:  # its base class has it
                delattr(torch.Tensor, name)
            else:
                setattr(torch.Tensor, name, method)


def _marking(method: Callable[..., Any], storages: Storages) -> Callable[..., Any]:
    """Marks the tensor's storage: others may write to it from now on."""

    @functools.wraps(method)
    def marked(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        storages.share(tensor)
        return method(tensor, *args, **kwargs)

    return marked


def _unseen(method: Callable[..., Any]) -> Callable[..., Any]:
    """Without the recorder: the alias that it makes may not be an object of Python's before it is of the subclass."""

    @functools.wraps(method)
    def unseen(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return method(*args, **kwargs)

    return unseen
