"""Digests and sketches of tensors, made on their device.

A digest is exact: the tensor's bytes, in the order of its indices and whatever its strides, as 64-bit words; each is
mixed and multiplied by an odd number that depends on its position, and two such sums are taken. Integer sums wrap, so
they do not depend on their order: the digest is the same in every PyTorch version and on every device. It is made to
tell outputs apart, not to withstand an adversary.

A sketch is the count sketch (Charikar, Chen and Farach-Colton, 2002): every element, with a sign that depends on its
position, is added to one of 64 numbers. It is linear, so the norm of the difference of two sketches estimates that of
the difference of two tensors that were never in one process; the standard error is about an eighth of it.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import torch

BUCKETS = 64
ROW = 1 << 14  # words, or elements, that have multipliers of their own
BLOCK, LARGE_BLOCK = 32, 512  # rows at a time: 4 MiB, which a processor's caches hold; elsewhere few kernels count more
ODD = 6364136223846793005  # of Knuth's MMIX generator
UNKNOWN = "?"  # in place of a digest: the values of a tensor cannot be read
_LOW = 0xFFFFFFFF


def _mixed(words: Any) -> Any:
    return words ^ ((words >> 32) & _LOW)


def _numbers(count: int, salt: int) -> Any:
    """`count` fixed int64 that look random: splitmix64 (Steele, Lea and Flood, 2014), in wrapping arithmetic."""
    z = (torch.arange(count, dtype=torch.int64) + salt) * -7046029254386353131
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * -4658895280553007687
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * -7723592293110705685
    return z ^ ((z >> 31) & ((1 << 33) - 1))


class Tables:
    """The multipliers and signs of one device."""

    def __init__(self, device: Any) -> None:
        self.words = (torch.stack([_numbers(ROW, 1), _numbers(ROW, 1 << 20)]) | 1).to(device)
        self.rows = (torch.stack([_numbers(ROW, 1 << 21), _numbers(ROW, 1 << 22)]) | 1).to(device)
        self.signs = ((_numbers(ROW, 1 << 23) & 2) - 1).double().to(device)
        self.row_signs = ((_numbers(ROW, 1 << 24) & 2) - 1).double().to(device)


_tables: dict[Any, Tables] = {}


def _of(device: Any) -> Tables:
    if device not in _tables:
        _tables[device] = Tables(device)
    return _tables[device]


def _block(tensor: Any) -> int:
    """It divides ROW; the result does not depend on it."""
    return BLOCK if tensor.device.type == "cpu" else LARGE_BLOCK


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
    """32 hexadecimal digits of a tensor's values: of a sparse or quantised one, of what it is made of; else UNKNOWN."""
    if tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_nested:
        return _dense(tensor)
    parts = _parts(tensor)
    return hashlib.sha256("".join(map(_dense, parts)).encode()).hexdigest()[:32] if parts else UNKNOWN


def _parts(tensor: Any) -> list[Any]:
    """Dense tensors that hold all that a tensor of another kind does; empty where it is not known how."""
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


def _dense(tensor: Any) -> str:
    words, tables = _words(tensor), _of(tensor.device)
    count = words.numel()
    if count <= ROW:
        sums = (_mixed(words) * tables.words[:, :count]).sum(1)
    else:
        whole = count // ROW
        tail = words[whole * ROW :]
        sums = (_mixed(tail) * tables.words[:, : tail.numel()]).sum(1)
        body = words[: whole * ROW].view(whole, ROW)
        step = _block(tensor)
        for first in range(0, whole, step):
            block, at = _mixed(body[first : first + step]), first % ROW
            again = pow(ODD, 1 + first // ROW, 1 << 64) - (1 << 63)  # rows' own multipliers repeat
            for each in (0, 1):  # the row's own number makes rows of equal bytes count differently
                of_rows = _mixed((block * tables.words[each]).sum(1)) * tables.rows[each, at : at + block.shape[0]]
                sums[each] += of_rows.sum() * again
    first, second = sums.tolist()
    return f"{first & (2**64 - 1):016x}{second & (2**64 - 1):016x}"


def sketch(tensor: Any) -> bytes:
    """64 float64 of a floating or complex tensor, as bytes."""
    flat = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    flat, tables = flat.reshape(-1), _of(tensor.device)
    sums = torch.zeros(BUCKETS, dtype=torch.float64, device=tensor.device)
    step = _block(tensor)
    for first in range(0, flat.numel(), ROW * step):
        part = flat[first : first + ROW * step].double()
        whole, at = part.numel() // ROW, first // ROW % ROW
        if whole:
            row = tables.row_signs[at : at + whole] @ part[: whole * ROW].view(whole, ROW)
            sums += (row * tables.signs).view(-1, BUCKETS).sum(0)
        tail = part[whole * ROW :]
        if tail.numel():
            signed = tail * tables.signs[: tail.numel()] * tables.row_signs[(at + whole) % ROW]
            short = -tail.numel() % BUCKETS
            signed = torch.cat([signed, signed.new_zeros(short)]) if short else signed
            sums += signed.view(-1, BUCKETS).sum(0)
    return struct.pack("<64d", *sums.tolist())
