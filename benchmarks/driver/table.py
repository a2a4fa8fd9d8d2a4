"""Formats measured rows as Markdown and as JSON."""
import dataclasses
import types

from driver.samples import Line, Sample

HEADS = ("", "heed", "share of the limit", "peer", "ratio", "resident memory, growth")
CORES = "core to core and back"  # heading of a column that is left out without measurements


@dataclasses.dataclass
class Remarks:
    """Conditions under which a row was measured."""
    disturbed: float = 0  # share of the processors that other programs used; 0: undisturbed
    core_to_core: list = dataclasses.field(default_factory=list)  # ns, before each run of heed; empty: one thread

    def cores_in_words(self):
        """Returns the range with two digits, or one number if both ends round to it."""
        if not self.core_to_core:
            return ""
        min_ns, max_ns = (f"{float(f'{ns:.1e}'):.0f}" for ns in (min(self.core_to_core), max(self.core_to_core)))
        return f"{min_ns} ns" if min_ns == max_ns else f"{min_ns} to {max_ns} ns"


def number(x):
    return f"{x:.2f}" if x < 10 else f"{x:.1f}" if x < 100 else f"{x:.0f}"


def share_of(line, row, limits):
    """Returns the percentage of the limit measured in this run, or else of the limit that the program measured."""
    rate = line.of_heed("rate")
    limit = limits.get(row.limit)
    if rate and limit:
        return 100 * rate / limit
    return line.of_heed("share")


def cells(row, line, limits, remarks):
    title = f"{row.title} {line.label}".strip()
    if remarks.disturbed:
        title += f" (other programs used {100 * remarks.disturbed:.0f}% of the processors)"
    share, form = share_of(line, row, limits), line.form()
    heed_mib, peer_mib = line.of_heed("mib"), line.of_peer("mib")
    peer = f"{row.peer} {form}".strip() + f" {number(line.of_peer())} {row.unit}" if form is not None else ""
    ours, theirs = line.of_heed("loss"), line.of_peer("loss")
    peer += f", loss {theirs:.3f}" if theirs else ""
    memory = f"{heed_mib:.0f} MiB" if heed_mib else ""
    if heed_mib and peer_mib:
        memory += f" against {peer_mib:.0f}"
    return (title, f"{number(line.of_heed())} {row.unit}" + (f", loss {ours:.3f}" if ours else ""),
            f"{share:.0f}% of {row.limit}" if share else "", peer, f"{line.ratio():.2f}" if form is not None else "", memory,
            remarks.cores_in_words())


def markdown(measured):
    """Returns the table as Markdown. measured: list of (row, lines, limits, remarks)."""
    table = [(*HEADS, CORES), ("---", *["---:"] * len(HEADS))]
    table += [cells(row, line, limits, remarks) for row, lines, limits, remarks in measured for line in lines]
    times = [ns for *_, remarks in measured for ns in remarks.core_to_core]
    if not times:
        table = [row[:-1] for row in table]
    text = "\n".join("| " + " | ".join(row) + " |" for row in table)
    return f"{text}\n\n{about_cores(min(times), max(times))}" if times else text


def about_cores(min_ns, max_ns):
    """Explains the last column, below the table. min_ns and max_ns: range of its times, in nanoseconds."""
    return ("Core to core and back: the time that a cache line takes to another core and back, measured before each of "
            f"heed's runs and after the row, minimum and maximum; in these rows {min_ns} to {max_ns} ns. It is short if "
            "the cores share a cache, and several times as long if they share none (on Zen 4 about 100 ns, and 480 ns). A "
            "virtual machine may change between the two within seconds. Small steps are slower while the time is long: "
            "compare rows with similar times. A row in which the time changed includes both.")


def limits_in_words(limits):
    words = {"read": "GB/s read", "copy": "GB/s copied (reads and writes counted)", "cores": f"ns {CORES}"}
    return ", ".join(f"{number(value)} {words.get(name, 'GFLOP/s in ' + name)}" for name, value in limits.items() if value)


def as_json(row, lines, remarks):
    return {
        "title": row.title,
        "unit": row.unit,
        "peer": row.peer,
        "limit": row.limit,
        "heed": row.heed.text(),
        "forms": {name: command.text() for name, command in row.forms.items()},
        "disturbed": round(remarks.disturbed, 3),
        "core_to_core": remarks.core_to_core,
        "lines": [{"label": line.label, "value": line.of_heed(), "peer_value": line.of_peer(), "form": line.form(),
                   "ratio": line.ratio(), "samples": [dataclasses.asdict(s) for s in line.heed],
                   "peer_samples": {form: [s and dataclasses.asdict(s) for s in samples]
                                    for form, samples in line.peer.items()}} for line in lines],
    }


def from_json(stored):
    """Converts a result of as_json(), with limits, to the input of markdown()."""
    def samples(list):
        return [s and Sample(**s) for s in list]
    lines = [Line(line["label"], samples(line["samples"]), {form: samples(s) for form, s in line["peer_samples"].items()})
             for line in stored["lines"]]
    return types.SimpleNamespace(**stored), lines, stored["limits"], Remarks(stored["disturbed"], stored.get("core_to_core", []))
