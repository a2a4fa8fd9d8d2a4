"""Runs programs and parses their output.

A program prints one line per measurement. A Command has a regular expression for these lines, with the named groups

    value   the measured time in the unit of the row; optional: by default the wall seconds of the run
    label   distinguishes the lines of one run; optional
    form    the variant of the peer that was measured; optional
    rate    GFLOP/s or GB/s, which are compared with a limit of the machine
    share   percent of a limit that the program measured itself
    mib     growth of resident memory
    loss    the loss of the model
"""
import os
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field

from driver.machine import DISTURBED, Watch


LONGEST = 90  # max seconds per row
NEAR = 1.03  # forms of a peer within this factor of its fastest are measured in each round


class BenchError(Exception):
    """An error that ends a row, or the program. The message is one sentence."""


@dataclass
class Command:
    argv: list
    pattern: str
    env: dict = field(default_factory=dict)

    def text(self):
        """Returns the command as a line for a shell."""
        return " ".join([f"{key}={value}" for key, value in self.env.items()] + self.argv)


@dataclass
class Sample:
    """The numbers of one line of output."""
    value: float = None
    label: str = ""
    form: str = ""
    rate: float = None
    share: float = None
    mib: float = None
    loss: float = None


def parse(command, output):
    """Returns the samples in the output of a run, at least one."""
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
    """Returns (the output of a run, its wall seconds)."""
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
    """Runs the command up to `tries` times, until other programs use at most DISTURBED of the processors during a run.

    Returns (samples, share of the processors that other programs used) of the run with the smallest share.
    """
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
    """One line of the table: all samples with one label."""
    label: str
    heed: list = field(default_factory=list)  # of Sample, one per round
    peer: dict = field(default_factory=dict)  # form -> list of Sample, None for rounds without the form

    def form(self):
        """Returns the fastest form of the peer, among those with the most rounds."""
        counts = {form: sum(s is not None for s in samples) for form, samples in self.peer.items()}
        medians = {form: median_of(samples, "value") for form, samples in self.peer.items()
                   if counts[form] == max(counts.values())}
        return min(medians, key=medians.get) if medians else None

    def near(self):
        """Returns the forms whose time in the first round is at most NEAR times the fastest."""
        first = {form: samples[0].value for form, samples in self.peer.items() if samples and samples[0]}
        return [form for form, value in first.items() if value <= NEAR * min(first.values())]

    def of_heed(self, what="value"):
        return median_of(self.heed, what)

    def of_peer(self, what="value"):
        return median_of(self.peer[self.form()], what) if self.form() is not None else None

    def ratio(self):
        """Returns the speedup of heed: the median of the ratios of consecutive runs."""
        form = self.form()
        if form is None:
            return None
        return statistics.median(b.value / a.value for a, b in zip(self.heed, self.peer[form]) if b)


def median_of(samples, what):
    numbers = [getattr(s, what) for s in samples if s and getattr(s, what) is not None]
    return statistics.median(numbers) if numbers else None



def in_turn(heed, forms, rounds, measure=measure, note=lambda *_: None, clock=time.perf_counter):
    """Runs heed and each form of the peer in turn, `rounds` times. Returns (lines, max share that other programs used).

    forms: name -> Command; may be empty. A form that is slower for each label in the first round is left out of later
    rounds. A third or later round does not begin if it would probably end more than LONGEST seconds after the start.
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
