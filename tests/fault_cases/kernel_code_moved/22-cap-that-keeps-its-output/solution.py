"""The cap and its way back, a kernel each. Newer versions keep its output, as the next layer does anyway."""

import torch
import triton
import triton.language as tl

KEEPS_OUTPUT = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 4)
BLOCK = 1024


@triton.jit
def capped(x, out, size, cap, WIDTH: tl.constexpr):
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    value = tl.load(x + at, mask=at < size, other=0.0).to(tl.float32) / cap
    y = cap * (1 - 2 / (1 + tl.exp(2 * value)))
    tl.store(out + at, y.to(out.dtype.element_ty), mask=at < size)


@triton.jit
def slope(kept, gradient, out, size, cap, WIDTH: tl.constexpr, IS_OUTPUT: tl.constexpr):
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    value = tl.load(kept + at, mask=at < size, other=0.0).to(tl.float32) / cap
    above = tl.load(gradient + at, mask=at < size, other=0.0).to(tl.float32)
    if IS_OUTPUT:
        below = above * (1 - value * value) / cap
    else:
        tanh = 1 - 2 / (1 + tl.exp(2 * value))
        below = above * (1 - tanh * tanh)
    tl.store(out + at, below.to(out.dtype.element_ty), mask=at < size)


class Cap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cap):
        y = torch.empty_like(x)
        capped[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), cap, WIDTH=BLOCK)
        ctx.save_for_backward(y if KEEPS_OUTPUT else x)
        ctx.cap = cap
        return y

    @staticmethod
    def backward(ctx, gradient):
        (kept,) = ctx.saved_tensors
        out = torch.empty_like(kept)
        slope[(triton.cdiv(out.numel(), BLOCK),)](
            kept, gradient, out, out.numel(), ctx.cap, WIDTH=BLOCK, IS_OUTPUT=KEEPS_OUTPUT
        )
        return out, None


class ModelNew(torch.nn.Module):
    def __init__(self, cap):
        super().__init__()
        self.cap = cap

    def forward(self, x, gradient):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(Cap.apply(x, self.cap), x, gradient)[0]
