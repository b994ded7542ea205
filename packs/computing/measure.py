"""Measures one Python source file: its size, its lines, and how branched its functions are.

Pure work for a pack: plain arguments in, a plain row out, the same row for the same bytes. Nothing of Wolf Pack is
imported, so the function also runs in a plain process pool.

A file that is no valid Python is a finding, not a failure: its row carries the parser's `error`. A file that cannot be
read at all is a failure: `OSError` goes to the caller.

*Branch complexity* is the cyclomatic number of T. J. McCabe, "A Complexity Measure", IEEE Transactions on Software
Engineering SE-2(4), 1976: v(G) = e - n + 2p for a control graph of e edges, n nodes and p components. For one
structured function it is the number of its decisions plus one, where each condition of a compound predicate counts on
its own. The decisions counted here:

- `if`, `elif`, the conditional expression, `for`, `while`, `except`, `assert`: one each;
- `and`, `or`: one less than their operands;
- a comprehension: one for each `for` and for each `if`;
- `match`: one for each case that can fail to match, one more for each further `|` alternative and for each guard.

A nested function counts on its own and not in the function around it; a lambda and a class body count in the function
around them. `else`, `finally` and `with` decide nothing.
"""

from __future__ import annotations

import ast
import hashlib
import io
import os
import threading
import tokenize
import warnings
from dataclasses import dataclass
from typing import Any

# So many of a file's most branched functions travel in its row: enough to find the ten worst of all files.
WORST_KEPT = 10

_NO_CODE = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)
# One parse at a time where hands are threads: before the fix of gh-106905 Python's parser kept its depth of recursion
# in one place for all threads ("AST constructor recursion depth mismatch"), as the warning filters still are.
_PARSER = threading.Lock()
# What the parser and the tokenizer raise for text that is no Python: null bytes and bad encodings are ValueErrors, and
# nesting too deep for the parser ends as one of the last two.
_NO_PYTHON = (SyntaxError, ValueError, tokenize.TokenError, RecursionError, MemoryError)


@dataclass(slots=True)
class Function:
    """One function or method: dotted name, line of its `def`, branch complexity."""

    name: str
    line: int
    complexity: int = 1


def shown(path: str) -> str:
    """The path as text that any file and any ledger can hold; different paths stay different.

    Bytes of a name that are no UTF-8 become `\\xff`, and a backslash becomes two.
    """
    doubled = path.replace("\\", "\\\\")
    return doubled.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def measure_file(path: str, root: str) -> dict[str, Any]:
    """Measures the file `path`, relative to the folder `root`.

    Returns:
        A row of plain values: `path` (as `shown` writes it), `bytes`, `sha256`, `lines`, `code`, `comment`, `blank`,
        `functions`, `classes`, `complexity` (sum over all functions), `worst` (up to ten `[complexity, name, line]`,
        the most branched first), `error` ("" or what the parser said; then the numbers after `sha256` are None).

    Raises:
        OSError: the file cannot be read.
    """
    with open(os.path.join(root, path), "rb") as file:
        data = file.read()
    row: dict[str, Any] = {"path": shown(path), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    try:
        return {**row, **measure_source(data), "error": ""}
    except _NO_PYTHON as exc:
        nothing = dict.fromkeys(("lines", "code", "comment", "blank", "functions", "classes", "complexity"))
        return {**row, **nothing, "worst": [], "error": describe(exc)}


def measure_source(data: bytes) -> dict[str, Any]:
    """The numbers of one source text; raises what the parser raises."""
    with _PARSER, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's code are not our caller's business
        tree = ast.parse(data)
    lines = count_lines(decode(data))
    functions, classes = find_functions(tree)
    functions.sort(key=lambda function: (-function.complexity, function.line, function.name))
    return {
        **lines,
        "functions": len(functions),
        "classes": classes,
        "complexity": sum(function.complexity for function in functions),
        "worst": [[function.complexity, function.name, function.line] for function in functions[:WORST_KEPT]],
    }


def decode(data: bytes) -> str:
    """The text of a source file by its coding line (PEP 263), with every line end as a newline."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return io.TextIOWrapper(io.BytesIO(data), encoding).read()


def count_lines(text: str) -> dict[str, int]:
    """Lines in all, with code (docstrings included), with nothing but a comment, and blank; the last three add up."""
    code: set[int] = set()
    comment: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comment.add(token.start[0])
        elif token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    # A line that holds only a backslash has no token of its own; it belongs to the statement that it goes on with.
    code.update(number for number, line in enumerate(lines, 1) if number not in comment and line.strip())
    only_comment = len(comment - code)
    with_code = len(code)
    return {
        "lines": len(lines),
        "code": with_code,
        "comment": only_comment,
        "blank": len(lines) - with_code - only_comment,
    }


def find_functions(tree: ast.AST) -> tuple[list[Function], int]:
    """All functions of a module with their branch complexity, and the number of its classes.

    The walk keeps its own stack: source nested as deep as the parser allows must not exhaust Python's.
    """
    functions: list[Function] = []
    classes = 0
    stack: list[tuple[ast.AST, Function | None, str]] = [(tree, None, "")]
    while stack:
        node, owner, scope = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function = Function(scope + node.name, node.lineno)
            functions.append(function)
            inside = set(map(id, node.body))
            for child in ast.iter_child_nodes(node):
                # Decorators, defaults and annotations run in the scope around the function.
                if id(child) in inside:
                    stack.append((child, function, f"{function.name}."))
                else:
                    stack.append((child, owner, scope))
            continue
        if isinstance(node, ast.ClassDef):
            classes += 1
            scope = f"{scope}{node.name}."
        elif owner is not None:
            owner.complexity += decisions(node)
        stack.extend((child, owner, scope) for child in ast.iter_child_nodes(node))
    return functions, classes


def decisions(node: ast.AST) -> int:
    """How many decisions this node makes itself, without its children; see the top of this file."""
    match node:
        case ast.If() | ast.IfExp() | ast.For() | ast.AsyncFor() | ast.While() | ast.ExceptHandler() | ast.Assert():
            return 1
        case ast.comprehension(ifs=ifs):
            return 1 + len(ifs)
        case ast.BoolOp(values=values):
            return len(values) - 1
        case ast.match_case(pattern=pattern, guard=guard):
            always = isinstance(pattern, ast.MatchAs) and pattern.pattern is None
            return (not always) + (guard is not None)
        case ast.MatchOr(patterns=patterns):
            return len(patterns) - 1
        case _:
            return 0


def describe(exc: BaseException) -> str:
    """The error as one line without paths, so that rows do not depend on where the file lies."""
    if isinstance(exc, SyntaxError):
        line = f" (line {exc.lineno})" if exc.lineno else ""
        text = f"{exc.msg}{line}"
    else:
        text = str(exc)
    return " ".join(f"{type(exc).__name__}: {text}".split()).rstrip(": ")
