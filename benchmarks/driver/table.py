"""What is told of rows that were measured: lines of Markdown, and an object for JSON."""
import dataclasses
import types

from driver.samples import Line, Sample

HEADS = ("", "heed", "of the limit", "the peer", "ratio", "resident memory grew by")


def number(x):
    return f"{x:.2f}" if x < 10 else f"{x:.1f}" if x < 100 else f"{x:.0f}"


def share_of(line, row, limits):
    """Percent of the machine's limit, as a share of what was measured in this run; else as the program says."""
    rate = line.of_heed("rate")
    limit = limits.get(row.limit)
    if rate and limit:
        return 100 * rate / limit
    return line.of_heed("share")


def cells(row, line, limits, disturbed):
    title = f"{row.title} {line.label}".strip()
    if disturbed:
        title += f" (others used {100 * disturbed:.0f}% of the processors)"
    share, form = share_of(line, row, limits), line.form()
    heed_mib, peer_mib = line.of_heed("mib"), line.of_peer("mib")
    peer = f"{row.peer} {form}".strip() + f" {number(line.of_peer())} {row.unit}" if form is not None else ""
    ours, theirs = line.of_heed("loss"), line.of_peer("loss")
    peer += f", loss {theirs:.3f}" if theirs else ""
    memory = f"{heed_mib:.0f} MiB" if heed_mib else ""
    if heed_mib and peer_mib:
        memory += f" against {peer_mib:.0f}"
    return (title, f"{number(line.of_heed())} {row.unit}" + (f", loss {ours:.3f}" if ours else ""),
            f"{share:.0f}% of {row.limit}" if share else "", peer, f"{line.ratio():.2f}" if form is not None else "", memory)


def markdown(measured):
    """measured: (row, lines, limits, share of the processors that others used, or 0 where nobody disturbed)."""
    table = [HEADS, ("---", "---:", "---:", "---:", "---:", "---:")]
    table += [cells(row, line, limits, disturbed) for row, lines, limits, disturbed in measured for line in lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in table)


def limits_in_words(limits):
    words = {"read": "GB/s read", "copy": "GB/s copied (reads and writes counted)"}
    return ", ".join(f"{number(value)} {words.get(name, 'GFLOP/s in ' + name)}" for name, value in limits.items() if value)


def as_json(row, lines, disturbed):
    return {
        "title": row.title,
        "unit": row.unit,
        "peer": row.peer,
        "limit": row.limit,
        "heed": row.heed.said(),
        "forms": {name: command.said() for name, command in row.forms.items()},
        "disturbed": round(disturbed, 3),
        "lines": [{"label": line.label, "value": line.of_heed(), "peer_value": line.of_peer(), "form": line.form(),
                   "ratio": line.ratio(), "samples": [dataclasses.asdict(s) for s in line.heed],
                   "peer_samples": {form: [s and dataclasses.asdict(s) for s in samples]
                                    for form, samples in line.peer.items()}} for line in lines],
    }


def from_json(stored):
    """What as_json() wrote, with its limits, as markdown() takes it."""
    def samples(list):
        return [s and Sample(**s) for s in list]
    lines = [Line(line["label"], samples(line["samples"]), {form: samples(s) for form, s in line["peer_samples"].items()})
             for line in stored["lines"]]
    return types.SimpleNamespace(**stored), lines, stored["limits"], stored["disturbed"]
