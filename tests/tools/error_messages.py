#!/usr/bin/env python3
"""Lists the error messages of the library that no test provokes.

  tests/tools/error_messages.py BUILD [ctest arguments]
  tests/tools/error_messages.py

Runs ctest in the build folder with every heed::Error logged (tests/tools/log_errors.cpp), and lists each call of
check(), require(), fail() and similar functions in core, autograd, layers, optim and data whose message was not
logged. Exits with 1 if tests/tools/error_messages.txt does not list such a message with a reason.

Without a build folder, reads the sources only, and exits with 1 if that file lists a message that they do not have.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["core", "autograd", "layers", "optim", "data", "io"]
# Calls that throw: the minimum number of arguments, and the parts of the message as a function of the arguments. A call
# with fewer arguments is to another function of this name.
CALLS = {
    "check": (3, lambda a: a[2:]),
    "require": (2, lambda a: a[1:]),
    "fail": (1, lambda a: a),
    "check_option": (4, lambda a: ["name", '": "', a[1], '" is "', a[2], '"; it must be "', a[3]]),  # of optimizers
    "owned": (3, lambda a: a[2:]),  # handles of HDF5
    "ask": (3, lambda a: ['" attention does not support "', a[2]]),  # of attention mechanisms
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
                return [a for a in found + [text[begin:i].strip()] if a]
        elif c == "," and depth == 1:
            found.append(text[begin:i].strip())
            begin = i + 1
        i += 1


def calls():
    """Yields (file:line, pattern of the message) for every call."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.?pp")):
            if path.name == "check.hpp":
                continue
            text = without_comments(path.read_text())
            constants = dict(re.findall(r'char\s*\*\s*(?:const )?(\w+) =\s*("(?:[^"\\]|\\.)*"(?:\s*"(?:[^"\\]|\\.)*")*);', text))
            for m in re.finditer(r"(?<![\w.>:])(?:detail::)?(\w+)\s*\(", text):
                if m.group(1) not in CALLS or re.search(r"\b(void|bool|Handle) +$", text[:m.start()]):
                    continue  # another call, or the definition of this function
                min_args, parts_of = CALLS[m.group(1)]
                given = arguments(text, m.end() - 1)
                if len(given) < min_args:
                    continue
                pattern = ""
                for part in parts_of(given):
                    part = constants.get(part, part)
                    if re.fullmatch(r'(?:"(?:[^"\\]|\\.)*"\s*)+', part):
                        literal = "".join(STRING.findall(part))
                        pattern += re.escape(literal.encode().decode("unicode_escape").encode("latin1").decode())
                    else:
                        pattern += ".*"
                line = text.count("\n", 0, m.start()) + 1
                yield f"{path.relative_to(ROOT)}:{line}", pattern


def plain(pattern):
    return re.sub(r"\\(.)", r"\1", pattern)


def provoked(build, arguments):
    """Runs ctest. Returns the messages of all Errors that were thrown."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "errors"
        log.touch()
        log.chmod(0o666)  # some tests drop the rights of root
        os.chmod(folder, 0o755)
        env = dict(os.environ, HEED_ERROR_LOG=str(log), LD_PRELOAD=str(build / "tests/tools/log_errors.so"))
        subprocess.run(["ctest", *arguments], cwd=build, env=env, stdout=subprocess.DEVNULL)
        return set(log.read_text(errors="replace").splitlines())


def main():
    if sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    every = list(calls())
    reasons = (ROOT / "tests/tools/error_messages.txt").read_text().splitlines()
    known = [r.split(" -- ")[0] for r in reasons if r and not r.startswith("#")]
    stale = [r for r in known if r not in {plain(pattern) for _, pattern in every}]
    for reason in stale:
        print(f"error_messages.txt: no call has the message {reason}")
    print(f"{len(every)} calls, {len(known)} that no test can reach")
    if len(sys.argv) == 1:
        return 1 if stale else 0

    messages = provoked(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:])
    missing = [(place, plain(pattern)) for place, pattern in every
               if plain(pattern) not in known and not any(re.search(pattern, m) for m in messages)]
    for place, pattern in missing:
        print(f"{place}: {pattern}")
    print(f"{len(missing)} that no test provokes")
    return 1 if missing or stale else 0


if __name__ == "__main__":
    sys.exit(main())
