"""Runs of programs, and what is read of their output.

A program prints a line for each thing that it measured. A Command says how such a line is read: a regular expression with
the named groups

    value   what counts, less is better (milliseconds, microseconds: the row says of what); absent: the run's own seconds
    label   which of several lines of one run this is; absent where there is one
    form    in which of several ways it was done; absent where there is one
    rate    GFLOP/s, or GB/s, beside which a limit of the machine is put
    share   the same in percent of a limit that the program measured itself
    mib     resident memory that the process grew by
    loss    what a model reached
"""
import os
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field

from driver.machine import DISTURBED, Watch


LONGEST = 90  # seconds of a row
NEAR = 1.03  # forms of a peer that are slower than its fastest by less than that are measured in each round


class BenchError(Exception):
    """What ends a row, or all: one sentence."""


@dataclass
class Command:
    argv: list
    pattern: str
    env: dict = field(default_factory=dict)

    def text(self):
        """As one would type it."""
        return " ".join([f"{key}={value}" for key, value in self.env.items()] + self.argv)


@dataclass
class Sample:
    """A line of one run."""
    value: float = None
    label: str = ""
    form: str = ""
    rate: float = None
    share: float = None
    mib: float = None
    loss: float = None


def parse(command, output):
    """The samples of a run's output; at least one."""
    found = []
    for match in re.finditer(command.pattern, output, re.MULTILINE):
        groups = {key: text for key, text in match.groupdict().items() if text is not None}
        for number in ("value", "rate", "share", "mib", "loss"):
            if number in groups:
                groups[number] = float(groups[number])
        found.append(Sample(**groups))
    if not found:
        raise BenchError(f"{command.text()} printed no line that matches {command.pattern!r}:\n"
                         f"{output.strip()[-1500:]}")
    return found


def execute(command):
    """(what a run printed, its wall seconds)"""
    start = time.perf_counter()
    try:
        process = subprocess.Popen(command.argv, env={**os.environ, **command.env}, text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
    except OSError as error:
        raise BenchError(f"{command.argv[0]} cannot be run: {error.strerror}")
    output, errors = process.communicate()
    wall = time.perf_counter() - start
    if process.returncode != 0:
        raise BenchError(f"{command.text()} ended with code {process.returncode}: {(errors or output).strip()[-1500:]}")
    return output + errors, wall


def children_seconds():
    times = os.times()
    return times.children_user + times.children_system


def measure(command, tries=3, execute=execute, watch=Watch):
    """(samples, share of the processors that others used meanwhile): of the first run that nobody disturbed, or of the
    least disturbed of `tries`."""
    best = None
    for _ in range(tries):
        own, others = children_seconds(), watch()
        output, wall = execute(command)
        disturbed = others.others(children_seconds() - own)
        samples = parse(command, output)
        for s in samples:
            if s.value is None:
                s.value = wall
        if best is None or disturbed < best[1]:
            best = samples, disturbed
        if disturbed <= DISTURBED or tries == 1:
            break
        print(f"    other programs used {100 * disturbed:.0f}% of the processors; repeating the run", file=sys.stderr, flush=True)
    return best


@dataclass
class Line:
    """One line of the table: all samples of one label."""
    label: str
    heed: list = field(default_factory=list)  # of Sample, one a round
    peer: dict = field(default_factory=dict)  # form -> list of Sample, or None where a round left the form out

    def form(self):
        """The peer's fastest, of those that were measured in as many rounds as any."""
        counts = {form: sum(s is not None for s in samples) for form, samples in self.peer.items()}
        medians = {form: median_of(samples, "value") for form, samples in self.peer.items()
                   if counts[form] == max(counts.values())}
        return min(medians, key=medians.get) if medians else None

    def near(self):
        """Forms that the first round found no slower than NEAR times the fastest."""
        first = {form: samples[0].value for form, samples in self.peer.items() if samples and samples[0]}
        return [form for form, value in first.items() if value <= NEAR * min(first.values())]

    def of_heed(self, what="value"):
        return median_of(self.heed, what)

    def of_peer(self, what="value"):
        return median_of(self.peer[self.form()], what) if self.form() is not None else None

    def ratio(self):
        """How many times faster heed is: the median of the ratios of runs that followed each other."""
        form = self.form()
        if form is None:
            return None
        return statistics.median(b.value / a.value for a, b in zip(self.heed, self.peer[form]) if b)


def median_of(samples, what):
    numbers = [getattr(s, what) for s in samples if s and getattr(s, what) is not None]
    return statistics.median(numbers) if numbers else None



def in_turn(heed, forms, rounds, measure=measure, note=lambda *_: None, clock=time.perf_counter):
    """heed and each form of the peer in turn, `rounds` times: (lines by label, the most that others used).

    forms: name -> Command, or none. A form that the first round finds slower, in each label, is left out of the others. From
    the third on, no round begins that would probably end later than LONGEST seconds after the first began.
    """
    begin = start = clock()
    lines, disturbed = {}, 0.0
    left, made_by = dict(forms), {}
    for turn in range(rounds):
        samples, others = measure(heed)
        disturbed = max(disturbed, others)
        note("heed", samples)
        for s in samples:
            lines.setdefault(s.label, Line(s.label)).heed.append(s)
        for name, command in list(left.items()):
            samples, others = measure(command)
            disturbed = max(disturbed, others)
            note(name, samples)
            for s in samples:
                form = " ".join(filter(None, (name, s.form)))
                made_by[form] = name
                if s.label in lines:
                    of_form = lines[s.label].peer.setdefault(form, [None] * turn)
                    of_form.append(s)
        for line in lines.values():
            for of_form in line.peer.values():
                of_form.extend([None] * (turn + 1 - len(of_form)))
        if turn == 0:
            near = {made_by[form] for line in lines.values() for form in line.near()}
            left = {name: command for name, command in left.items() if name in near}
        end = clock()
        if turn > 0 and end - begin + (end - start) > LONGEST:
            break
        start = end
    return list(lines.values()), disturbed
