"""Digests and sketches of tensors, made on their device.

A digest is exact: the tensor's bytes, in the order of its indices and whatever its strides, as 64-bit words. Each word
is mixed and multiplied by an odd number that depends on its position, and two such sums are taken. Integer sums wrap,
so they do not depend on their order: the digest is the same in every PyTorch version and on every device. It tells
outputs apart; it does not withstand an adversary.

A sketch is the count sketch (Charikar, Chen and Farach-Colton, 2002): every element, with a sign that depends on its
position, is added to one of 64 numbers. It is linear, so the norm of the difference of two sketches estimates that of
the difference of two tensors that were never in one process; the standard error is about an eighth of it.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any, Iterator

import torch

BUCKETS = 64
ROW = 1 << 14  # words, or elements, that have multipliers of their own
BLOCK_ROWS, LARGE_BLOCK_ROWS = 16, 512  # at a time: 2 MiB fit a CPU's caches; a GPU takes fewer, larger kernels better
UNKNOWN = "?"  # in place of a digest: the values of a tensor cannot be read
_LOW = 0xFFFFFFFF


def _mix(words: Any) -> Any:
    return words ^ ((words >> 32) & _LOW)


def _fixed_numbers(count: int, salt: int) -> Any:
    """Return `count` int64 that look random: splitmix64 (Steele, Lea and Flood, 2014), in wrapping arithmetic."""
    z = (torch.arange(count, dtype=torch.int64) + salt) * -7046029254386353131
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * -4658895280553007687
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * -7723592293110705685
    return z ^ ((z >> 31) & ((1 << 33) - 1))


class Multipliers:
    """Numbers and signs of positions, on one device."""

    def __init__(self, device: Any) -> None:
        pairs = [torch.stack([_fixed_numbers(ROW, 1 << low), _fixed_numbers(ROW, 1 << (low + 1))]) for low in (20, 22)]
        self.words, self.rows = ((pair | 1).to(device) for pair in pairs)
        signs = [((_fixed_numbers(ROW, 1 << salt) & 2) - 1).double() for salt in (24, 25)]
        self.signs, self.row_signs = (each.to(device) for each in signs)


_multipliers: dict[Any, Multipliers] = {}


def _multipliers_on(device: Any) -> Multipliers:
    if device not in _multipliers:
        _multipliers[device] = Multipliers(device)
    return _multipliers[device]


def _blocks(flat: Any) -> Iterator[tuple[int, Any]]:
    """Yield (number of the first row, modulo ROW; rows) of a flat tensor, block by block; zeros fill up the last row.
    The result of a sum does not depend on the size of the blocks, which divides ROW."""
    count = flat.numel()
    width = min(ROW, count + -count % BUCKETS)
    block_rows = BLOCK_ROWS if flat.device.type == "cpu" else LARGE_BLOCK_ROWS
    for first in range(0, count, ROW * block_rows):
        block = flat[first : first + ROW * block_rows]
        missing = -block.numel() % width
        if missing:
            block = torch.cat([block, block.new_zeros(missing)])
        yield first // ROW % ROW, block.view(-1, width)


def _words(tensor: Any) -> Any:
    flat = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor.resolve_neg()
    flat = flat.contiguous().reshape(-1)
    size = flat.element_size()
    if flat.numel() * size % 8 == 0 and flat.storage_offset() * size % 8 == 0:
        return flat.view(torch.int64)
    raw = flat.view(torch.uint8)
    padded = raw.new_zeros((raw.numel() + 7) // 8 * 8)
    padded[: raw.numel()] = raw
    return padded.view(torch.int64)


def digest(tensor: Any) -> str:
    """Return 32 hexadecimal digits of a tensor's values: of a sparse or quantised one, of its parts; else UNKNOWN."""
    if tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_nested:
        return _digest_dense(tensor)
    parts = _dense_parts(tensor)
    return hashlib.sha256("".join(map(_digest_dense, parts)).encode()).hexdigest()[:32] if parts else UNKNOWN


def _dense_parts(tensor: Any) -> list[Any]:
    """Return dense tensors that hold all that a tensor of another kind does; none where it is not known how."""
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    if tensor.is_quantized and tensor.qscheme() is torch.per_tensor_affine:
        return [tensor.int_repr(), torch.tensor([tensor.q_scale(), tensor.q_zero_point()], dtype=torch.float64)]
    if tensor.is_quantized and tensor.qscheme() is torch.per_channel_affine:
        return [tensor.int_repr(), tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()]
    return []


def _digest_dense(tensor: Any) -> str:
    words, numbers = _words(tensor), _multipliers_on(tensor.device)
    sums = words.new_zeros(2)
    for first, rows in _blocks(words):
        height, width = rows.shape
        row_sums = (_mix(rows) * numbers.words[:, None, :width]).sum(2)
        # The row's own number makes rows of equal bytes count differently.
        sums += (_mix(row_sums) * numbers.rows[:, first : first + height]).sum(1)
    high, low = sums.tolist()
    return f"{high & (2**64 - 1):016x}{low & (2**64 - 1):016x}"


def sketch(tensor: Any) -> bytes:
    """Return 64 float64 of a floating or complex tensor, as bytes."""
    flat, numbers = torch.view_as_real(tensor) if tensor.is_complex() else tensor, _multipliers_on(tensor.device)
    sums = torch.zeros(BUCKETS, dtype=torch.float64, device=tensor.device)
    for first, rows in _blocks(flat.reshape(-1)):
        height, width = rows.shape
        signed = (numbers.row_signs[first : first + height] @ rows.double()) * numbers.signs[:width]
        sums += signed.view(-1, BUCKETS).sum(0)
    return struct.pack("<64d", *sums.tolist())
