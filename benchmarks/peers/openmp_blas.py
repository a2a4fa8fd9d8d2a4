"""Comparisons want the OpenBLAS that shares PyTorch's threads: with the pthread build two pools fight for the processors."""
import os
import sys

import torch


def require_openmp_blas():
    torch.ones(64, 64) @ torch.ones(64, 64)  # loads the library
    with open("/proc/self/maps") as maps:
        blas = {os.path.realpath(line.split()[-1]) for line in maps if "blas" in line}
    if not any("openmp" in path for path in blas):
        sys.exit("PyTorch runs on %s; choose libopenblas0-openmp as libblas.so.3" % (sorted(blas) or "no BLAS"))
