#!/usr/bin/env python3
"""Which error messages of the library does the test suite never provoke?

  tests/tools/error_messages.py BUILD [ctest arguments]

Runs ctest in the build folder with every heed::Error logged (tests/tools/log_errors.cpp), and lists each call of
check(), require(), fail() and their like in core, autograd, layers, optim and data whose message was not among them.
Exits 1 where there is one that tests/tools/error_messages.txt does not name with its reason.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["core", "autograd", "layers", "optim", "data"]
# Calls that throw: the parts of the message, made of the arguments.
CALLS = {
    "check": lambda a: a[2:],
    "require": lambda a: a[1:],
    "fail": lambda a: a,
    "check_option": lambda a: ["name", '": "', a[1], '" is "', a[2], '"; it must be "', a[3]],  # of optimizers
    "owned": lambda a: a[2:],  # handles of HDF5
    "ask": lambda a: [a[2], '" was asked for"'],  # of attention mechanisms
}
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def without_comments(text):
    return re.sub(r'("(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)\')|//[^\n]*', lambda m: m.group(1) or "", text)


def arguments(text, start):
    """The arguments of the call whose bracket opens at `start`."""
    depth, begin, found, i = 0, start + 1, [], start
    while True:
        c = text[i]
        if c in "\"'":
            i += 1
            while text[i] != c:
                i += 2 if text[i] == "\\" else 1
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                return found + [text[begin:i].strip()]
        elif c == "," and depth == 1:
            found.append(text[begin:i].strip())
            begin = i + 1
        i += 1


def calls():
    """(file:line, pattern of the message) for every call."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.?pp")):
            if path.name == "check.hpp":
                continue
            text = without_comments(path.read_text())
            constants = dict(re.findall(r'char\s*\*\s*(?:const )?(\w+) =\s*("(?:[^"\\]|\\.)*"(?:\s*"(?:[^"\\]|\\.)*")*);', text))
            for m in re.finditer(r"(?<![\w.>:])(?:detail::)?(\w+)\s*\(", text):
                if m.group(1) not in CALLS or re.search(r"\b(void|bool|Handle) +$", text[:m.start()]):
                    continue  # another call, or a function of that name
                parts = CALLS[m.group(1)](arguments(text, m.end() - 1))
                pattern = ""
                for part in parts:
                    part = constants.get(part, part)
                    if re.fullmatch(r'(?:"(?:[^"\\]|\\.)*"\s*)+', part):
                        literal = "".join(STRING.findall(part))
                        pattern += re.escape(literal.encode().decode("unicode_escape").encode("latin1").decode())
                    else:
                        pattern += ".*"
                line = text.count("\n", 0, m.start()) + 1
                yield f"{path.relative_to(ROOT)}:{line}", pattern


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "errors"
        env = dict(os.environ, HEED_ERROR_LOG=str(log), LD_PRELOAD=str(build / "tests/tools/log_errors.so"))
        subprocess.run(["ctest", *sys.argv[2:]], cwd=build, env=env, stdout=subprocess.DEVNULL)
        messages = set(log.read_text(errors="replace").splitlines())
    reasons = (ROOT / "tests/tools/error_messages.txt").read_text().splitlines()
    known = [r.split(" -- ")[0] for r in reasons if r and not r.startswith("#")]
    count, missing = 0, []
    for place, pattern in calls():
        count += 1
        plain = re.sub(r"\\(.)", r"\1", pattern)
        if not any(re.search(pattern, m) for m in messages) and plain not in known:
            missing.append((place, plain))
    for place, pattern in missing:
        print(f"{place}: {pattern}")
    print(f"{count} calls, {len(known)} that no test can reach, {len(missing)} that none provokes")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
