"""Runs stored programs again: three times as they were, and once in float64."""

from __future__ import annotations

import ctypes
import os
from typing import Any

import torch

from .digest import digest
from .programs import run

TIMES = 3


def replay_all(request: dict[str, Any]) -> dict[str, Any]:
    """Of every program: its values and those of its float64 form, as float64 in files, and an entry of the result:
    `repeats` (digests of each time), `outputs` (dtype and shape of each), and `error` and `exact_error`, where PyTorch
    refused."""
    results: dict[str, dict[str, Any]] = {}
    for name, path in request["programs"].items():
        program = torch.load(path, weights_only=False)
        result = results[name] = {"repeats": [], "error": "", "exact_error": "", "outputs": []}
        try:
            every = [run(program) for _ in range(TIMES)]
            result["repeats"] = [[digest(each) for each in outputs.values()] for outputs in every]
            _write(request["out"], name, "", every[0])
            result["outputs"] = [[str(each.dtype)[6:], list(each.shape)] for each in every[0].values()]
        except Exception as error:
            result["error"] = f"{type(error).__name__}: {str(error)[:500]}"
        try:
            _write(request["out"], name, "exact", run(program, exact=True))
        except Exception as error:
            result["exact_error"] = f"{type(error).__name__}: {str(error)[:500]}"
    return results


def _write(folder: str, name: str, kind: str, outputs: dict[Any, Any]) -> None:
    for place, tensor in enumerate(outputs.values()):
        values = tensor.detach().double().cpu().contiguous()
        with open(os.path.join(folder, "-".join(filter(None, [name, kind, str(place)])) + ".f64"), "wb") as file:
            file.write(ctypes.string_at(values.data_ptr(), values.numel() * 8) if values.numel() else b"")
