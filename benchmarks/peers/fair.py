"""Setup of each PyTorch program. Ends a program whose setup would make PyTorch slower than necessary."""
import os
import sys

import torch


def status_mib(key):
    """Returns a value of /proc/self/status, such as VmRSS or VmHWM, in MiB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(key))


class ResidentGrowth:
    """Measures the growth of peak resident memory after construction. Construct it after the imports, including those
    of torch.compile(), and before the model, as in heed's programs."""

    def __init__(self, compiled):
        if compiled:
            from torch import _dynamo  # noqa: F401
            from torch._inductor import compile_fx  # noqa: F401
        with open("/proc/self/clear_refs", "w") as high_water_mark:
            high_water_mark.write("5")  # resets the peak to the current value
        self.before = status_mib("VmRSS")

    def mib(self):
        return status_mib("VmHWM") - self.before


def require_fair_setup():
    """Checks the setup and sets PyTorch's threads. Returns their number, OMP_NUM_THREADS."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if not threads.isdigit():
        sys.exit("peer: OMP_NUM_THREADS is '%s'; it must be the number of threads that heed uses" % threads)
    if int(threads) > len(os.sched_getaffinity(0)):
        sys.exit("peer: OMP_NUM_THREADS is %s, but there are %d processors; threads would wait for each other"
                 % (threads, len(os.sched_getaffinity(0))))
    torch.set_num_threads(int(threads))
    # The wheel has MKL. A PyTorch build with another library must share its threads, or two pools compete.
    if not torch.backends.mkl.is_available():
        torch.ones(64, 64) @ torch.ones(64, 64)  # loads the library
        with open("/proc/self/maps") as maps:
            blas = {os.path.realpath(line.split()[-1]) for line in maps if "blas" in line}
        if not any("openmp" in path for path in blas):
            sys.exit("peer: PyTorch uses %s for products; it must be MKL, or OpenBLAS with OpenMP" % (sorted(blas) or "no BLAS"))
    hold_to_avx2()
    return int(threads)


def hold_to_avx2():
    """Limits all parts to AVX2 if ATEN_CPU_CAPABILITY is avx2: ATen's kernels, oneDNN, MKL and the code of
    torch.compile(). On processors that are not Intel's, MKL uses 256-bit kernels in any case."""
    if os.environ.get("ATEN_CPU_CAPABILITY") != "avx2":
        return
    for name in ("ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS"):
        if os.environ.get(name) != "AVX2":
            sys.exit("peer: ATEN_CPU_CAPABILITY is avx2, but %s is not AVX2; it must be" % name)
    if torch.backends.cpu.get_cpu_capability() != "AVX2":
        sys.exit("peer: PyTorch uses %s despite ATEN_CPU_CAPABILITY=avx2" % torch.backends.cpu.get_cpu_capability())
    from torch._inductor import config
    config.cpp.march = "haswell"  # otherwise the compiler may use AVX-512
