"""Bundles: the matrix's images as a folder of plain files, for a machine with neither engine nor registry.

Packed by `python -m harness bundle`, unpacked by the `unpack.sh` beside the parts, run by executor `bundle`.
"""
