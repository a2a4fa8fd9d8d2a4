#!/usr/bin/env python3
"""Lists the long functions of the library, and the functions with many parameters.

    tests/tools/function_sizes.py            the sources of the library
    tests/tools/function_sizes.py FILE...    these files

Prints "file:line: name: N lines" for functions longer than 40 lines, "file:line: name: N parameters" for functions with
8 or more parameters, and the two totals. structure/function_sizes_test.cpp compares the totals with its limits.

- Lines are those from the signature (without "template <...>") to the closing bracket. Comments and blank lines do not
  count. Lambdas and local classes are part of their function.
- A function counts once, at its definition if it has one. Overloads and specialisations are functions of their own.
  Pointers to functions, macros and explicit instantiations are not functions.
- Both branches of an #if are read, so each branch must have balanced brackets.
"""
import argparse
import re
import sys
from collections import namedtuple
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ["core", "autograd", "layers", "optim", "data", "io", "plot", "mpi"]
MAX_LINES = 40
MIN_PARAMETERS = 8

TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<directive>(?:(?<=\n)|\A)[ \t]*\#(?:\\\n|/\*.*?\*/|[^\n])*)
      | (?P<string>(?:u8|[uUL])?R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+')
      | (?P<number>\.?\d(?:'?[\w.]|(?<=[eEpP])[+-])*)
      | (?P<word>\w+)
      | (?P<sign>->\*?|::|\.\.\.|[&|=!<>+*/%^-]=(?!=)|==|&&|\|\||.)""",
    re.S | re.X,
)
CLOSING = {"(": ")", "[": "]", "{": "}"}
MACRO = re.compile(r"HEED_[A-Z0-9_]+")
# A "(" after these words does not begin parameters.
NOT_NAMES = {"alignas", "decltype", "noexcept", "requires", "explicit", "__attribute__", "__declspec", "sizeof"}
NOT_FUNCTIONS = {"using", "typedef", "static_assert", "concept"}

Token = namedtuple("Token", "text line")
Function = namedtuple("Function", "path line name types lines is_definition")


class Unbalanced(Exception):
    pass


def read_tokens(text):
    """The tokens of a source without directives, and the numbers of the lines that have code."""
    tokens, lines, line = [], set(), 1
    for match in TOKEN.finditer(text):
        kind, found = match.lastgroup, match.group(0)
        kind = "string" if kind == "mark" else kind
        rows = found.split("\n")
        if kind != "space":
            lines.update(line + i for i, row in enumerate(rows) if row.strip())
        if kind not in ("space", "directive"):
            tokens.append(Token(re.sub(r"[^\n]", "_", found) if kind == "string" else found, line))
        line += len(rows) - 1
    return tokens, lines


def end_of_bracket(tokens, i):
    """The index after the bracket that closes the one at i."""
    open_brackets = []
    for j in range(i, len(tokens)):
        text = tokens[j].text
        if text in CLOSING:
            open_brackets.append(CLOSING[text])
        elif text in (")", "]", "}"):
            if open_brackets.pop() != text:
                break
            if not open_brackets:
                return j + 1
    raise Unbalanced(f"line {tokens[i].line}: '{tokens[i].text}' has no matching bracket")


def end_of_angle(tokens, i):
    """The index after the ">" that closes the "<" at i, or None if the "<" is a comparison."""
    if i == 0 or not re.match(r"\w", tokens[i - 1].text) or tokens[i - 1].text == "operator":
        return None
    depth = 0
    while i < len(tokens):
        text = tokens[i].text
        if text in ("(", "[", "{"):
            i = end_of_bracket(tokens, i)
            continue
        depth += (text == "<") - (text == ">")
        if depth == 0:
            return i + 1
        if text in (")", "]", "}", ";", "||"):
            return None
        i += 1
    return None


def skip(tokens, i):
    """The index after a token, or after the brackets or template arguments that begin at i."""
    if tokens[i].text in CLOSING:
        return end_of_bracket(tokens, i)
    return (end_of_angle(tokens, i) if tokens[i].text == "<" else None) or i + 1


def split_at_commas(tokens):
    parts, i = [[]], 0
    while i < len(tokens):
        end = skip(tokens, i)
        if tokens[i].text == ",":
            parts.append([])
        else:
            parts[-1] += tokens[i:end]
        i = end
    return [part for part in parts if part]


def type_of(parameter):
    """The text of a parameter without its name and default value, which may differ between declarations."""
    words = [t.text for t in parameter]
    if "=" in words:
        words = words[: words.index("=")]
    if len(words) > 1 and re.match(r"\w", words[-1]) and words[-2] != "::":
        words.pop()
    return " ".join(words)


def without_template(statement):
    """The statement after "template <...>"."""
    while len(statement) > 1 and statement[0].text == "template" and statement[1].text == "<":
        statement = statement[end_of_angle(statement, 1) or len(statement) :]
    return statement


def function_head(statement):
    """The name of the function that a statement declares, and the start and end of its parameters; None if none."""
    words = [t.text for t in statement]
    if not words or words[0] in NOT_FUNCTIONS or words[:2] == ["extern", "template"] or words[0] == "template":
        return None
    i = 0
    while i < len(words):
        if words[i] == "operator":
            start = i + 3 if words[i + 1 : i + 3] == ["(", ")"] else i + 1
            while start < len(words) and words[start] != "(":
                start += 1
            name_end = start
        elif words[i] in ("=", ":"):
            return None
        elif words[i] == "(" and i > 0:
            start = name_end = i
        else:
            i = skip(statement, i)
            continue
        if start >= len(words):
            return None
        end = end_of_bracket(statement, start)
        first = name_end
        if words[i] == "operator":
            first = i
        elif words[i - 1] == ">":  # name<arguments>
            first = next((j for j in range(i - 1) if words[j] == "<" and skip(statement, j) == i), i) - 1
        else:
            first = i - 1
        if first < 0 or words[first] in NOT_NAMES or MACRO.fullmatch(words[first]) or not re.match(r"\w", words[first]):
            i = end
            continue
        if words[start + 1] in ("*", "&") or words[start + 1 : start + 3] == ["::", "*"]:
            return None  # a pointer to a function
        if first > 0 and words[first - 1] == "~":
            first -= 1
        while first > 1 and words[first - 1] == "::" and re.match(r"[\w>]", words[first - 2]):
            first -= 2
            if words[first] == ">":  # Class<T>::name
                first = next(j for j in range(first) if words[j] == "<" and skip(statement, j) == first + 1) - 1
        return re.sub(r"(?<=\w) (?=\w)", " ", join(words[first:name_end])), start, end
    return None


def join(words):
    return re.sub(r"(?<=\w)\0(?=\w)", " ", "\0".join(words)).replace("\0", "")


def scope_of(statement):
    """The kind and name of the scope that a "{" after this statement opens: namespace, class, enum or None."""
    words = [t.text for t in statement]
    while words and words[0] in ("inline", "typedef"):
        words = words[1:]
    if words[:1] == ["namespace"]:
        return "namespace", join(words[1:])
    if words[:1] == ["extern"] and len(words) == 2:
        return "namespace", None
    if words[:1] == ["enum"]:
        return "enum", ""
    if words[:1] and words[0] in ("struct", "class", "union"):
        i, name = 1, ""
        while i < len(words) and words[i] not in (":", "=", "final"):
            if words[i] == "(":  # alignas(64), or the parameters of a function
                if words[i - 1] != "alignas":
                    return None
            elif re.match(r"\w", words[i]) and words[i] != "alignas":
                name = words[i]
            i = skip(statement, len(statement) - len(words) + i) - (len(statement) - len(words))
        return ("class", name) if "=" not in words[i : i + 1] else None
    return None


def functions_of(path, text):
    """Yields the functions that a source declares or defines outside of function bodies."""
    tokens, code_lines = read_tokens(text)
    scopes = []  # their names
    statement, i = [], 0

    def function(head, end_line=None):
        signature = without_template(statement)
        name, start, end = head
        types = [type_of(p) for p in split_at_commas(signature[start + 1 : end - 1])]
        types = [] if types == ["void"] else types
        first = signature[0].line
        lines = sum(first <= n <= end_line for n in code_lines) if end_line else 0
        return Function(path, first, "::".join([s for s in scopes if s] + [name]), types, lines, end_line is not None)

    while i < len(tokens):
        token = tokens[i].text
        if token == ";":
            head = function_head(without_template(statement))
            if head:
                yield function(head)
            statement, i = [], i + 1
        elif token == "}":
            if not scopes:
                raise Unbalanced(f"line {tokens[i].line}: '}}' closes nothing")
            scopes.pop()
            statement, i = [], i + 1
        elif token == ":" and statement and statement[-1].text in ("public", "protected", "private"):
            statement, i = [], i + 1
        elif token == "{":
            signature = without_template(statement)
            scope = scope_of(signature)
            if scope and scope[0] != "enum":
                kind, name = scope
                scopes.append(name if name or kind == "class" or name is None else f"({path})")
                statement, i = [], i + 1
                continue
            end = end_of_bracket(tokens, i)
            head = None if scope else function_head(signature)
            is_value = head is None  # of a variable, or of a member in a constructor's list
            if head and any(t.text == ":" for t in signature[head[2] :]):
                is_value = signature[-1].text not in (")", "}", "...")
            if is_value:
                statement, i = statement + tokens[i:end], end
                continue
            while end < len(tokens) and tokens[end].text == "catch":  # of a body that begins with "try"
                end = end_of_bracket(tokens, end_of_bracket(tokens, end + 1))
            yield function(head, tokens[end - 1].line)
            statement, i = [], end
        else:
            end = skip(tokens, i) if token in ("(", "[") else i + 1
            statement, i = statement + tokens[i:end], end
            if token == "(" and MACRO.fullmatch(statement[0].text) and statement[1].text == "(":
                statement = []  # a call of a macro, without ";"
    if scopes:
        raise Unbalanced(f"the last line: '{{' of {scopes[-1]} is not closed")


def counted_once(functions):
    """The functions without repeated declarations: those that have a definition, or an earlier declaration."""
    functions = sorted(functions, key=lambda f: not f.is_definition)
    seen, left, kept = set(), {}, []
    for f in functions:
        overload = (f.name, len(f.types))
        if f.is_definition:
            left[overload] = left.get(overload, 0) + 1  # declarations of these definitions may spell types differently
        else:
            if (f.name, *f.types) in seen:
                continue
            seen.add((f.name, *f.types))
            if left.get(overload, 0) > 0:
                left[overload] -= 1
                continue
        kept.append(f)
    return sorted(kept, key=lambda f: (f.path, f.line))


def library():
    files = (p for folder in FOLDERS for p in (ROOT / folder).rglob("*") if p.suffix in (".hpp", ".cpp"))
    return sorted(str(p.relative_to(ROOT)) for p in files)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE")
    given = parser.parse_args()
    found = []
    for path in given.files or library():
        try:
            text = (Path(path) if given.files else ROOT / path).read_text(encoding="utf-8")
            found += functions_of(path, text)
        except Unbalanced as e:
            sys.exit(f"function_sizes: {path}: {e}")
    found = counted_once(found)
    long = [f for f in found if f.lines > MAX_LINES]
    wide = [f for f in found if len(f.types) >= MIN_PARAMETERS]
    for f in long:
        print(f"{f.path}:{f.line}: {shown(f)}: {f.lines} lines")
    for f in wide:
        print(f"{f.path}:{f.line}: {shown(f)}: {len(f.types)} parameters")
    print(f"{len(long)} of {len(found)} functions are longer than {MAX_LINES} lines")
    print(f"{len(wide)} of {len(found)} functions have {MIN_PARAMETERS} or more parameters")


def shown(function):
    """The name without the namespaces that hold all of the library."""
    name = re.sub(r"\([^()]*/[^()]*\)::", "", function.name)
    return re.sub(r"^heed::|\bHEED_LEVEL::", "", name)


if __name__ == "__main__":
    main()
