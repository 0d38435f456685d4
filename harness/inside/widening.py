"""Whole numbers in 64 bits wherever PyTorch is asked for fewer, so that none wraps in a narrower type."""

import torch
from torch.overrides import TorchFunctionMode

NARROWER = (torch.int8, torch.uint8, torch.int16, torch.int32)
CASTS = (torch.Tensor.char, torch.Tensor.byte, torch.Tensor.short, torch.Tensor.int)
SAME_BITS = (torch.Tensor.view, torch.frombuffer, torch.from_file)  # by another name, and not another number


class WideIntegers(TorchFunctionMode):
    """What is asked for by a type, as an argument or by a method, in this thread. Given tensors keep theirs."""

    def __torch_function__(self, function, _types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in CASTS:
            return torch.Tensor.long(args[0])
        if function not in SAME_BITS:
            args = [_wide(value) for value in args]
            kwargs = {name: _wide(value) for name, value in kwargs.items()}
        return function(*args, **kwargs)


def _wide(value):
    return torch.int64 if isinstance(value, torch.dtype) and value in NARROWER else value
