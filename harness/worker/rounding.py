"""The error scale: what straightforward arithmetic costs, on this very input, in this dtype; and the norms it has.

No kernel can be closer to the truth than its arithmetic allows, and how close that is depends on the dtype, the length
and the numbers. So the error of a target is measured in units of the error that plain, faultless arithmetic makes on
the same input, as FlashAttention's tests measure theirs in errors of PyTorch. `emulation` does that arithmetic for
all, of attention's formula in `attention_formula`.

Four norms, because a bias and a wrong row hide under a maximum (`Ruler`). One unit of each, its cost, is that of the
emulated output, and never less than rounding of the output demands. It is a property of the input and of what the
kernel declares (`precision`): it depends on neither PyTorch nor the device, so the error scale is the same everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator

import numpy as np

from . import dtypes

if TYPE_CHECKING:
    from .dtypes import Array
    from .inputs import Shape

    Block = Callable[[slice, slice], Array]  # values of a slice of rows and one of columns

Norms = Dict[str, float]  # a number for each of `NORMS`

NORMS = ("largest", "row", "factor", "bias")
FLOOR = 2.0**-10  # of the tensor's largest value: no row counts as smaller than that,
SHARE = 2.0**-3  # nor than that of its root mean square: the smallest of many rows would be all that is measured
SHORTEST = 16  # elements: of so few the largest may be near zero by chance, so shorter rows count together
BLOCK = 1 << 17  # elements taken at a time: 1 MiB of float64
UNIT = 2.0**-53  # of whatever is no floating-point type of the interface
MOST = 1e300  # units: JSON has no infinity
# Of the root mean square. Errors of single elements average out; what is left is a common factor or offset.
BIAS_FLOOR = {"float16": 2.0**-16, "bfloat16": 2.0**-13, "float32": 2.0**-23}
# What a kernel may declare beyond plain float32 inside; `tf32` rounds the operands of products to 11 significant bits,
# and `tf32x3` splits them into two such parts (`three_products`): in all matrix products, or in attention's alone.
TF32_MATMUL, TF32_CONVOLUTION, FLOAT16_SUMS = "tf32_matmul", "tf32_convolution", "float16_sums"
TF32X3_MATMUL, TF32X3_ATTENTION = "tf32x3_matmul", "tf32x3_attention"
DECLARED = ((TF32X3_MATMUL,), (TF32_MATMUL, TF32_CONVOLUTION), (FLOAT16_SUMS,))  # the finest first
# A tensor core is taken to cut each product off two bits below the last bit of the largest term's float32. Half of that
# is lost of each of three products, on average, and the power of two below x is x / (2 ln 2) on average.
CUT_OFF = 3 * 2.0**-26 / (2 * np.log(2))


def effective(precision: Iterable[str], dtype: str) -> list[str]:
    """Return what can matter in the dtype of what is declared, in one order."""
    known = (TF32_CONVOLUTION, TF32_MATMUL, TF32X3_MATMUL, TF32X3_ATTENTION) if dtype == "float32" else (FLOAT16_SUMS,)
    return [name for name in known if name in precision]


def sum_error(squares: Any, total: Any, terms: float, unit: float) -> Any:
    """Standard deviation of the error of adding `terms` products one by one, each partial sum rounded.

    `squares` is the sum of the products' squares, `total` their sum. Rounding errors are independent and of mean zero
    (Higham and Mary, A new approach to probabilistic rounding error analysis, SIAM J. Sci. Comput. 41(5), 2019), and
    a partial sum of k terms is a random walk with a drift: its mean square is k / K squares + (k / K total) ** 2.
    """
    return unit / 3**0.5 * (terms / 2 * squares + terms / 3 * total**2) ** 0.5


def tf32(array: Array, truncate: bool) -> Array:
    """Float32 to 11 significant bits: to nearest, or cut off, as tensor cores do with what nobody rounded before."""
    bits: Array = np.ascontiguousarray(array, np.float32).view(np.uint32)
    if not truncate:
        bits = bits + (np.uint32(0x0FFF) + ((bits >> np.uint32(13)) & np.uint32(1)))
    cut: Array = (bits & np.uint32(0xFFFFE000)).view(np.float32)
    return cut


def three_products(left: Array, right: Array) -> Array:
    """Return what left [..., m, terms] @ right [..., terms, n] is off by where float32 operands are split into two TF32
    parts each, and tensor cores add up three of the four products, as CUTLASS's OpMultiplyAddFastF32 does; so PyTorch's
    efficient attention, and that of xFormers, compute float32 since compute capability 8.0.

    The product of the small parts is missing, and terms are cut off where they are aligned, towards zero (Fasi, Higham,
    Mikaitis and Pranesh, Numerical behavior of NVIDIA tensor cores, PeerJ Computer Science 7, 2021), so that results
    are a little too small. Of attention so emulated an H200's outputs stand at 0.5 to 1.4 units, of plain float32 at
    up to 5.8.
    """
    parts = []
    for array in (left, right):
        large = tf32(array, truncate=True)
        small = tf32(array.astype(np.float32) - large, truncate=False)
        parts.append((large.astype(np.float64), small.astype(np.float64)))
    (large, small), (above, below) = parts
    one, other = left.astype(np.float64, copy=False), right.astype(np.float64, copy=False)
    total = one @ other
    missing = large @ above + small @ above + large @ below - total
    # The mean size of a partial sum: a random walk whose end is known strays from the straight way there.
    partial = (np.square(one) @ np.square(other) / 10 + np.square(total) / 4) ** 0.5
    found: Array = missing - CUT_OFF * partial * (np.sign(one) @ np.sign(other))
    return found


def greatest(dtype: str) -> float:
    """Return the greatest finite number of a dtype; infinity where no number is known to round to infinity."""
    unit = dtypes.UNIT_ROUNDOFF.get(dtype, 0.0)
    return dtypes.OVERFLOW.get(dtype, np.inf) * (1 - unit / (2 - unit))


def without_lost(emulated: Array, truth: Array, dtype: str) -> Array:
    """Return an output of arithmetic that left the dtype's range on its way, with NaN in place of each number that is
    lost: of a zero and of the greatest finite number, where the rounded truth is another one."""
    if dtype not in dtypes.UNIT_ROUNDOFF:
        return emulated
    rounded = dtypes.quantise(truth, dtype)
    is_lost = ((emulated == 0) | (np.abs(emulated) == greatest(dtype))) & (emulated != rounded)
    return np.where(is_lost, np.nan, emulated)


def as_rows(array: Array) -> Array:
    """A view [rows, columns]: the last axis, and those before it until a row has `SHORTEST` elements."""
    columns = 1
    for size in reversed(array.shape):
        if columns >= SHORTEST:
            break
        columns *= size
    return array.reshape(-1, columns) if array.size else array.reshape(0, 1)


def blocks(shape: Shape) -> Iterator[tuple[slice, slice]]:
    """Slices of rows and columns that cover [rows, columns], each of at most about `BLOCK` elements."""
    step = max(1, BLOCK // shape[1])
    for first in range(0, shape[0], step):
        for left in range(0, shape[1], BLOCK):
            yield slice(first, first + step), slice(left, left + BLOCK)


def block_of(array: Array) -> Block:
    values = as_rows(array)
    return lambda rows, columns: values[rows, columns]


class Ruler:
    """A truth, and what the norms of an error are relative to.

    largest: over all rows, max |error| / max |truth| of the row;
    row: over all rows, the l2 norm of the error over that of the truth;
    factor: over all rows, |<error, truth>| over <truth, truth>: the factor by which a row is off, or a part of it;
    bias: over all elements, the larger of |mean of the error| over the truth's root mean square, and that factor: an
    output that is symmetric about zero and scaled has no mean.
    Elements that are not finite, in the truth or once it is rounded to the dtype, do not count.
    """

    def __init__(self, truth: Array, dtype: str) -> None:
        self.truth, self.dtype = truth, dtype
        self.rows = as_rows(truth)
        self.unit = dtypes.UNIT_ROUNDOFF.get(dtype, UNIT)
        self.threshold = dtypes.OVERFLOW.get(dtype, np.inf)  # what is as large rounds to infinity
        self.greatest = greatest(dtype)
        largest, squares = np.zeros(len(self.rows)), np.zeros(len(self.rows))
        counted, fourth = 0, 0.0
        self.plain = False
        for rows, columns in blocks(self.rows.shape):
            values = self.counting(rows, columns)
            np.maximum(largest[rows], np.abs(values).max(axis=1), out=largest[rows])
            square = np.square(values)
            squares[rows] += square.sum(axis=1)
            fourth += float(np.square(square, out=square).sum())
            counted += int(np.count_nonzero(np.abs(self.rows[rows, columns]) < self.threshold))
        self.plain = counted == truth.size  # every element is finite, and stays so
        total = float(squares.sum())
        self.counted = max(1, counted)
        self.largest = float(largest.max()) if len(largest) else 0.0
        self.rms = (total / self.counted) ** 0.5 or 1.0
        self.squares = total or 1.0
        low = max(self.largest * FLOOR, self.rms * SHARE) if total else 1.0
        self.row_largest = np.maximum(largest, low)
        self.row_l2 = np.maximum(np.sqrt(squares), self.rms * SHARE * self.rows.shape[1] ** 0.5)
        self.independent = total**2 / fourth if fourth else self.counted  # as many elements carry the sums

    def counting(self, rows: slice, columns: slice) -> Array:
        """Return a block of the truth, zero where elements do not count."""
        values = self.rows[rows, columns]
        return values if self.plain else np.where(np.abs(values) < self.threshold, values, 0.0)

    def norms(self, got: Array | Block) -> Norms:
        """Return the norms of `got` [like the truth, or a function of a slice of rows and one of columns], over
        elements that are finite in both."""
        sums = ErrorSums(self)
        found = got if callable(got) else block_of(got)
        with np.errstate(invalid="ignore", over="ignore"):
            for rows, columns in blocks(self.rows.shape):
                want = self.rows[rows, columns]
                difference = np.subtract(found(rows, columns), want, dtype=np.float64)
                difference[~(np.isfinite(difference) & (np.abs(want) < self.threshold))] = 0.0
                sums.add(rows, columns, difference)
        return sums.norms()

    def rounded(self, values: Array) -> Array:
        return dtypes.quantise(np.ascontiguousarray(values, np.float64), self.dtype)


class ErrorSums:
    """What the norms need, added up block by block; elements that do not count have a difference of zero."""

    def __init__(self, ruler: Ruler) -> None:
        self.ruler = ruler
        self.largest, self.squares, self.products = np.zeros((3, len(ruler.rows)))
        self.mean = 0.0

    def add(self, rows: slice, columns: slice, difference: Array) -> None:
        np.maximum(self.largest[rows], np.abs(difference).max(axis=1), out=self.largest[rows])
        self.mean += float(difference.sum())
        self.products[rows] += np.einsum("ij,ij->i", difference, self.ruler.counting(rows, columns))
        self.squares[rows] += np.einsum("ij,ij->i", difference, difference)

    def norms(self) -> Norms:
        if not len(self.largest):
            return dict.fromkeys(NORMS, 0.0)
        ruler = self.ruler
        return {
            "largest": float((self.largest / ruler.row_largest).max()),
            "row": float((np.sqrt(self.squares) / ruler.row_l2).max()),
            "factor": float((np.abs(self.products) / ruler.row_l2**2).max()),
            "bias": max(abs(self.mean) / ruler.counted / ruler.rms, abs(float(self.products.sum())) / ruler.squares),
        }


class ErrorScale:
    """One unit of each norm on one input. `leaves_range`: in an intermediate step straightforward arithmetic leaves the
    dtype's range, and some of its elements are lost. That is told, and excuses nothing."""

    def __init__(self, costs: Norms, leaves_range: bool, ruler: Ruler) -> None:
        self.costs, self.leaves_range, self.ruler = costs, leaves_range, ruler

    def units(self, norms: Norms) -> Norms:
        """Each norm in units."""
        return {name: min(norms[name] / self.costs[name], MOST) for name in NORMS}


def measure(emulated: Iterable[Array], ruler: Ruler) -> tuple[Norms, bool]:
    """Return (costs, leaves_range) of an error scale: one unit of each norm is the most that an emulated output has,
    and never less than rounding of the output demands. An emulated element that is not finite counts for nothing: no
    rounding error is as large as the loss of a number.

    Correct rounding moves an element by up to a unit roundoff; a row by less, and a mean of n elements by about its
    n ** -0.5, unless many are the same: so the truth itself, rounded, is asked too.
    """
    costs = {
        "largest": ruler.unit,
        "row": ruler.unit / 3**0.5,
        "factor": ruler.unit / 2,  # of a row that one element carries
        "bias": max(BIAS_FLOOR.get(ruler.dtype, ruler.unit), ruler.unit * ruler.independent**-0.5),
    }
    leaves_range = False

    def count(got: Array | Block) -> None:
        for name, value in ruler.norms(got).items():
            costs[name] = max(costs[name], value)

    if ruler.dtype in dtypes.UNIT_ROUNDOFF:
        count(lambda rows, columns: ruler.rounded(ruler.rows[rows, columns]))
    for array in emulated:
        count(array)
        if not np.isfinite(array).all():
            leaves_range |= bool((~np.isfinite(array) & (np.abs(ruler.truth) <= ruler.greatest)).any())
    return costs, leaves_range
