"""What each PyTorch program here begins with. It ends one whose setup would make PyTorch look slower than it is."""
import os
import sys

import torch


def status_mib(key):
    """A line of /proc/self/status, as VmRSS or VmHWM."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(key))


class ResidentGrowth:
    """By how much the most that was ever resident passes what is resident where this is made: before the model is built, and
    behind what is imported, as in heed's programs. What torch.compile() imports is imported before, too."""

    def __init__(self, compiled):
        if compiled:
            from torch import _dynamo  # noqa: F401
            from torch._inductor import compile_fx  # noqa: F401
        with open("/proc/self/clear_refs", "w") as high_water_mark:
            high_water_mark.write("5")  # it falls to what is resident now
        self.before = status_mib("VmRSS")

    def mib(self):
        return status_mib("VmHWM") - self.before


def require_fair_setup():
    """The number of threads that were asked for, all of which PyTorch uses from here on."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if not threads.isdigit():
        sys.exit("peer: OMP_NUM_THREADS is '%s'; it must be the number of threads that heed uses" % threads)
    if int(threads) > len(os.sched_getaffinity(0)):
        sys.exit("peer: OMP_NUM_THREADS is %s, but there are %d processors; threads would wait for each other"
                 % (threads, len(os.sched_getaffinity(0))))
    torch.set_num_threads(int(threads))
    # The wheel has MKL. A PyTorch that was built for another library must share its threads, or two pools fight.
    if not torch.backends.mkl.is_available():
        torch.ones(64, 64) @ torch.ones(64, 64)  # loads the library
        with open("/proc/self/maps") as maps:
            blas = {os.path.realpath(line.split()[-1]) for line in maps if "blas" in line}
        if not any("openmp" in path for path in blas):
            sys.exit("peer: PyTorch uses %s for products; it must be MKL, or OpenBLAS with OpenMP" % (sorted(blas) or "no BLAS"))
    hold_to_avx2()
    return int(threads)


def hold_to_avx2():
    """Where ATEN_CPU_CAPABILITY asks for AVX2, all parts must be held to it: ATen's kernels, oneDNN, MKL, and what
    torch.compile() makes. MKL has kernels of 256 bits for processors that are not Intel's, and needs no word there."""
    if os.environ.get("ATEN_CPU_CAPABILITY") != "avx2":
        return
    for name in ("ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS"):
        if os.environ.get(name) != "AVX2":
            sys.exit("peer: ATEN_CPU_CAPABILITY is avx2, but %s is not AVX2; it must be" % name)
    if torch.backends.cpu.get_cpu_capability() != "AVX2":
        sys.exit("peer: PyTorch uses %s despite ATEN_CPU_CAPABILITY=avx2" % torch.backends.cpu.get_cpu_capability())
    from torch._inductor import config
    config.cpp.march = "haswell"  # else the compiler may take AVX-512 where the code does not
