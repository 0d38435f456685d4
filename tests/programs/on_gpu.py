"""`python on_gpu.py PROGRAM.py`: a program of this folder, whose tensors are made on the GPU."""

import runpy
import sys

import torch

torch.set_default_device("cuda")
sys.argv = sys.argv[1:]
held = runpy.run_path(sys.argv[0], run_name="__main__")
