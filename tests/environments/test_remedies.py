"""Every name of PyTorch that a message offers exists in the pinned versions, or is known to be missing from one."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.environments.verbs import Environment
from tests.torch_names import LACKING

pytestmark = [pytest.mark.environments, pytest.mark.timeout(300)]

# Prints the version of PyTorch, and which of some names it lacks.
LOOK_UP = """
import importlib, json, os, re, sys, torch

def is_there(name):
    found, path = torch, "torch"
    for part in name.split(".")[1:]:
        path = f"{path}.{part}"
        try:
            found = getattr(found, part) if hasattr(found, part) else importlib.import_module(path)
        except ImportError:
            return False
    return True

def is_declared(name):
    word = re.compile(r"\\b" + name.rpartition("::")[2] + r"\\b")
    folder = os.path.join(os.path.dirname(torch.__file__), "include", "c10", "cuda")
    headers = [os.path.join(folder, file) for file in os.listdir(folder) if file.endswith(".h")]
    return any(word.search(open(header).read()) for header in headers)

names = json.loads(sys.argv[1])
lacking = [name for name in names if not (is_declared if "::" in name else is_there)(name)]
print(json.dumps([torch.__version__.partition("+")[0], lacking]))
"""


def test_names_that_messages_offer_exist(environments: list[Environment]) -> None:
    invented = ["torch.nn.functional.softmaxx", "c10::cuda::CUDAGuardian"]  # which the look-up must miss
    for environment in environments:
        command = [str(environment.python), "-c", LOOK_UP, json.dumps([*LACKING, *invented])]
        done = subprocess.run(command, capture_output=True, text=True, cwd=environment.folder)
        assert done.returncode == 0, done.stderr
        version, lacking = json.loads(done.stdout.splitlines()[-1])
        expected = {name for name, versions in LACKING.items() if version in versions}
        assert set(lacking) == expected | set(invented), version
