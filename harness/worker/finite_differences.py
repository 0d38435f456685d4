"""Whether a problem's float64 gradients are the slopes of its own float64 outputs, by central finite differences.

It says which of two gradients is right where two versions compute the same outputs and other gradients: a slope needs
no backward pass. A gradient that is meant to be none, such as a straight-through estimator's, agrees with neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

import torch

from . import inputs, protocol

if TYPE_CHECKING:
    from .outputs import Graph

    MakeGraph = Callable[..., Graph]  # of a float64 call, with the leaf of a name moved by a distance

STEP = 2.0**-20  # relative to the largest magnitude of what is moved
TOLERANCE = 1e-5  # of the sum of the magnitudes of the terms: far above the error of a central difference
MOST_GRADIENTS = 16  # that are checked: each takes two forward calls
MOST_ELEMENTS = 1 << 25  # of the arguments together: of more the calls take too long
DRAWN = 20241128  # seed of the directions


def agree(graph_of: MakeGraph) -> dict[str, bool]:
    """Return, for each of the first `MOST_GRADIENTS` gradients by its name as an output, whether its product with one
    random direction is the slope of the outputs along that direction, in float64."""
    graph = graph_of()
    gradients = graph.gradients()
    return {
        protocol.GRADIENT + name: _is_slope(graph_of, graph, name, gradients[protocol.GRADIENT + name], number)
        for number, name in enumerate(list(graph.leaves)[:MOST_GRADIENTS])
        if gradients[protocol.GRADIENT + name] is not None and not graph.leaves[name].is_complex()
    }


def _is_slope(graph_of: MakeGraph, graph: Graph, name: str, gradient: Any, number: int) -> bool:
    leaf = graph.leaves[name].detach()
    gradient = gradient.detach()
    drawn = torch.from_numpy(inputs.deviates(DRAWN, number, 0, leaf.numel())).to(leaf.dtype).view(leaf.shape)
    drawn = torch.where(gradient == 0, drawn, drawn.abs() * gradient.sign())  # so that no two products cancel
    finite = leaf[torch.isfinite(leaf)].abs()
    step = STEP * (float(finite.max()) if finite.numel() else 1.0) or STEP
    ahead, behind = (graph_of(name, drawn * distance) for distance in (step, -step))
    slopes = [
        ((one - other) * along.conj()).real / (2 * step)
        for one, other, along in zip(ahead.roots, behind.roots, graph.along)
    ]
    products = gradient * drawn
    measured, expected = sum(float(slope.sum()) for slope in slopes), float(products.sum())
    scale = sum(float(slope.abs().sum()) for slope in slopes) + float(products.abs().sum())
    return abs(measured - expected) <= TOLERANCE * scale
