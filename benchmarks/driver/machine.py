"""The machine that a table is measured on: what it is, and how much of it others use meanwhile."""
import os
import platform
import time

BUSY = 0.15  # of all processors: more than that in use by others, and nothing is measured
DISTURBED = 0.05  # more than that in use by others during a run, and it is done again


def processor_seconds(stat):
    """(seconds in which processors worked, seconds in all, number of processors) of a text of /proc/stat."""
    lines = [line.split() for line in stat.splitlines() if line.startswith("cpu")]
    ticks = [int(x) for x in lines[0][1:9]]  # user, nice, system, idle, iowait, irq, softirq, steal
    hertz = os.sysconf("SC_CLK_TCK")
    total = sum(ticks)
    return (total - ticks[3] - ticks[4]) / hertz, total / hertz, len(lines) - 1


def read_stat():
    try:
        with open("/proc/stat") as stat:
            return stat.read()
    except OSError:
        return None


class Watch:
    """What others use of the processors from here on, as a share of all of them."""

    def __init__(self, read=read_stat):
        self.read, self.before = read, read()

    def others(self, own_seconds=0.0):
        """`own_seconds`: processor time of what was measured meanwhile."""
        after = self.read()
        if not self.before or not after:
            return 0.0  # no such file here: nothing is known
        worked, total, _ = (b - a for a, b in zip(processor_seconds(self.before), processor_seconds(after)))
        return max(0.0, worked - own_seconds) / total if total > 0 else 0.0


def busy(seconds=1.0):
    watch = Watch()
    time.sleep(seconds)
    return watch.others()


def wait_until_idle(patience, busy=busy, sleep=time.sleep, note=lambda load: None):
    """The share that others still use after at most `patience` looks; BUSY or less: go on."""
    load = busy()
    for _ in range(patience):
        if load <= BUSY:
            break
        note(load)
        sleep(1)
        load = busy()
    return load


def threads():
    """Processors that this process may use; heed's threads, unless a quota of a cgroup leaves fewer."""
    return len(os.sched_getaffinity(0))


def field_of(path, key):
    try:
        with open(path) as lines:
            for line in lines:
                if line.startswith(key):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return None


def describe():
    memory = field_of("/proc/meminfo", "MemTotal")
    return {
        "processor": field_of("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "processors": os.cpu_count(),
        "threads": threads(),
        "memory_gib": round(int(memory.split()[0]) / 1048576, 1) if memory else None,
        "system": "%s %s" % (platform.system(), platform.release()),
    }
