"""Kernels that the tests run and judge: faulty, cheating and hostile ones, and pairs in KernelBench's form."""
