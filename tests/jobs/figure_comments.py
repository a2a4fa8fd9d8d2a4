"""Reads the comments of pages that name the commands of their figures (described in tests/jobs/figures)."""
import dataclasses
import itertools
import re
import shlex

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
RULE = re.compile(r"(?P<kind>column|row|cell|text|table)(?: (?P<name>[^/]*?))?(?: ?/(?P<page>(?:[^/\\]|\\.)*)/)?"
                  r"(?: = /(?P<pattern>(?:[^/\\]|\\.)*)/)?(?P<how> mean| ratio)?(?: within (?P<within>[\d.]+%?))?"
                  r"(?: on (?P<cpu>Zen [45]))?")


class PageError(Exception):
    """A comment that does not fit its page."""


@dataclasses.dataclass
class Figure:
    """A number on a page, and the command that prints it."""
    page: str
    line: int
    name: str
    value: str            # as on the page
    commands: list        # one, or several whose mean is taken
    pattern: str
    group: int
    rule: dict
    needs: str
    seconds: float

    def tolerance(self):
        """The tolerance as text, and as a number."""
        within = self.rule["within"]
        if within is None:
            digits = len(self.value.partition(".")[2])
            return "exact", 0.5 * 10 ** -digits * (1 + 1e-9) + 1e-12
        if within.endswith("%"):
            return within, abs(float(self.value)) * float(within[:-1]) / 100
        return within, float(within)


def cells_of(line):
    return [c.strip() for c in line.strip().strip("|").split("|")]


def plain(text):
    return re.sub(r"[`*]|&[a-z]+;", "", text).strip()


class Target:
    """The part of a page after a comment: a table, a paragraph, or an indented block."""

    def __init__(self, lines, start):
        self.start, self.lines = start, []
        indented = lines[start].startswith("    ")  # may have blank lines
        for line in lines[start:]:
            if line.startswith("<!--") or (not line.startswith("    ") and line.strip() if indented else not line.strip()):
                break
            self.lines.append(line)
        self.table = bool(self.lines) and self.lines[0].startswith("|")
        if self.table:
            self.heads = cells_of(self.lines[0])
            self.rows = [(start + i, cells_of(line)) for i, line in enumerate(self.lines) if i > 1]

    def column(self, name):
        found = [i for i, h in enumerate(self.heads) if plain(h).startswith(plain(name))]
        exact = [i for i in found if plain(self.heads[i]) == plain(name)]
        found = exact or found
        if len(found) != 1:
            raise PageError(f"{len(found)} columns begin with '{name}'")
        return found[0]


def targets(lines):
    """Yields comments with the parts after them: (line, text, Target)."""
    comment = None
    pending = []
    inside = False
    for i, line in enumerate(lines):
        if line.startswith("```"):
            inside = not inside
        if comment is None and line.startswith("<!-- figures") and not inside:
            comment = (i, [])
        if comment is not None:
            comment[1].append(line)
            if "-->" in line:
                pending.append((comment[0], "\n".join(comment[1])))
                comment = None
        elif line.strip() and not line.startswith("<!--") and pending:
            target = Target(lines, i)
            yield from ((at, text, target) for at, text in pending)
            pending = []
    if comment is not None or pending:
        raise PageError(f"line {(comment or pending[0])[0] + 1}: nothing follows the comment")


def alternatives(command):
    """The commands that a command with (a|b) describes."""
    parts = re.split(r"\(([^()|]+(?:\|[^()|]+)+)\)", command)
    choices = [p.split("|") if i % 2 else [p] for i, p in enumerate(parts)]
    return ["".join(c) for c in itertools.product(*choices)]


def filled(text, values, quote=lambda s: s):
    def value(match):
        words, name = match.group(1).startswith("*"), match.group(1).lstrip("*")
        if name not in values and "column" in values:
            found = plain(values["cells"][values["column"](name)])
        elif name in values:
            found = values[name]
        else:
            raise PageError(f"'{{{name}}}' is not a column")
        return found if words else quote(found)
    return re.sub(r"\{([^{}0-9,][^{}]*)\}", value, text)


def numbers_of(where, text, rule):
    if rule["page"] is None or rule["kind"] == "text":
        return NUMBER.findall(plain(text))
    found = re.search(rule["page"], text)
    if found is None:
        raise PageError(f"{where}: /{rule['page']}/ is not in '{text}'")
    return list(found.groups())


def places_of(target, rule, rows):
    """The places of a rule's figures: (line, name, figures, values for {NAME}) per cell, or for the text."""
    if rule["kind"] == "text":
        text = "\n".join(target.lines)
        found = re.search(re.sub(r" (?!\?|\*|\+)", r"\\s+", rule["page"]), text)
        if found is None:
            raise PageError(f"/{rule['page']}/ is not in the text")
        return [(target.start + text[:found.start()].count("\n"), "text", list(found.groups()), {})]
    if not target.table:
        raise PageError(f"'{rule['kind']}' requires a table")
    if rule["kind"] == "column":
        at = target.column(rule["name"])
        cells = [(line, row, at) for line, row in target.rows if re.search(rows, plain(row[0]))]
    else:
        name, _, head = rule["name"].partition(" | ")
        found = [(line, row) for line, row in target.rows if plain(row[0]).startswith(plain(name))]
        if len(found) != 1:
            raise PageError(f"{len(found)} rows begin with '{name}'")
        columns = [target.column(head)] if rule["kind"] == "cell" else range(1, len(found[0][1]))
        cells = [(*found[0], at) for at in columns]
    places = []
    for line, row, at in cells:
        if NUMBER.search(row[at]):
            values = {"row": plain(row[0]), "head": plain(target.heads[at]), "cells": row, "column": target.column}
            places.append((line, f"{values['row']}, {values['head']}", numbers_of(line, row[at], rule), values))
    if not places:
        raise PageError(f"'{rule['kind']} {rule['name']}' has no figures")
    return places


def rule_figures(page, target, command, rule, rows):
    """The figures of a rule; `command` is (text, needs, seconds)."""
    text, needs, seconds = command
    for line, name, numbers, values in places_of(target, rule, rows):
        commands = alternatives(filled(text, values, shlex.quote))
        pattern = filled(rule["pattern"], values, re.escape)
        groups = 1 if rule["how"] == " ratio" else re.compile(pattern).groups
        mean = rule["how"] == " mean"
        if len(numbers) != groups * (1 if mean else len(commands)):
            raise PageError(f"line {line + 1}: {len(numbers)} figures in {name}, but the commands give "
                            f"{groups * (1 if mean else len(commands))}")
        for i, number in enumerate(numbers):
            if not NUMBER.fullmatch(number):
                raise PageError(f"line {line + 1}: '{number}' is not a number, in {name}")
            yield Figure(page, line + 1, name, number, commands if mean else [commands[i // groups]], pattern, i % groups,
                         rule, needs, seconds)


def table_figures(page, target, command, rule):
    """The figures of a table that the command prints."""
    text, needs, seconds = command
    for line, cells in target.rows:
        for at in range(1, len(cells)):
            for i, number in enumerate(NUMBER.findall(cells[at])):
                yield Figure(page, line + 1, f"{cells[0]}, {target.heads[at]} ({at})", number, [text],
                             "\0".join([cells[0], str(at)]), i, rule, needs, seconds)


def rules_of(page, target, text):
    """The figures of the commands and rules in a comment."""
    command = used = None
    for line in re.sub(r" *\\\n *", " ", text).strip().split("\n"):
        start = re.fullmatch(r"\$ (\d+) s(?:, needs ([a-z0-9_]+))?: (.+)", line)
        rule = RULE.fullmatch(line)
        if start:
            command, rows, used = (start.group(3), start.group(2), float(start.group(1))), "", False
        elif line.startswith("rows /"):
            rows = line[6:-1]
        elif rule is None or command is None or (rule["kind"] != "table") != (rule["pattern"] is not None):
            raise PageError(f"'{line}' is not a rule")
        elif rule["kind"] == "table":
            used = True
            yield from table_figures(page, target, command, rule)
        else:
            used = True
            yield from rule_figures(page, target, command, rule, rows)
    if not used:
        raise PageError("a command without a rule")


def figures_of(page, text):
    """The figures that a page's comments name, and the reasons in comments without a command."""
    figures, reasons = [], []
    for at, comment, target in targets(text.split("\n")):
        try:
            body = re.fullmatch(r"<!-- figures(.*?)\s*-->\s*", comment, re.DOTALL)
            none = body and re.fullmatch(r" none: (.+)", body.group(1), re.DOTALL)
            if none:
                reasons.append((page, target.start + 1, " ".join(none.group(1).split())))
            elif body is None or body.group(1)[:1] != "\n":
                raise PageError("must be <!-- figures, lines, --> or <!-- figures none: REASON -->")
            else:
                figures += rules_of(page, target, body.group(1))
        except (PageError, re.error) as error:
            raise PageError(f"{page}:{at + 1}: {error}") from None
    return figures, reasons


def uncovered(page, text):
    """Tables without a comment that have a column aligned to the right, or numbers in more than half of their cells."""
    lines = text.split("\n")
    covered = {target.start for _, _, target in targets(lines)}
    for i, line in enumerate(lines):
        if not line.startswith("|---") or i - 1 in covered:
            continue
        target = Target(lines, i - 1)
        cells = [c for _, row in target.rows for c in row[1:] if c]
        if "-:" in line or sum(bool(re.match(r"[-+<~]?\d", plain(c))) for c in cells) > len(cells) / 2:
            yield f"{page}:{i}: a table of numbers without a comment <!-- figures ... --> before it"
