"""Describes the machine and measures its load by other programs."""
import os
import platform
import time

BUSY = 0.15  # share of all processors; nothing is measured if other programs use more
DISTURBED = 0.05  # a run is repeated if other programs used a larger share during it


def processor_seconds(stat):
    """Returns (busy seconds, total seconds, number of processors) from the text of /proc/stat."""
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
    """Measures the share of all processors that other programs use after construction."""

    def __init__(self, read=read_stat):
        self.read, self.before = read, read()

    def others(self, own_seconds=0.0):
        """own_seconds: processor time of the measured programs, which is subtracted."""
        after = self.read()
        if not self.before or not after:
            return 0.0  # the file does not exist: unknown
        worked, total, _ = (b - a for a, b in zip(processor_seconds(self.before), processor_seconds(after)))
        return max(0.0, worked - own_seconds) / total if total > 0 else 0.0


def busy(seconds=1.0):
    watch = Watch()
    time.sleep(seconds)
    return watch.others()


def wait_until_idle(patience, busy=busy, sleep=time.sleep, note=lambda load: None):
    """Waits up to `patience` times for an idle machine. Returns the last load: idle is at most BUSY."""
    load = busy()
    for _ in range(patience):
        if load <= BUSY:
            break
        note(load)
        sleep(1)
        load = busy()
    return load


def threads():
    """Returns the number of processors of this process. heed has as many threads, or fewer by a cgroup quota."""
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
