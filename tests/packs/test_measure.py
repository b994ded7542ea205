"""One file in, one row out; branch complexity after McCabe."""

import ast
import gc
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from packs.computing.measure import count_lines, find_functions, measure_file, measure_source, shown


def complexity_of(body: str) -> int:
    functions, _ = find_functions(ast.parse(body))
    return functions[0].complexity


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("def f(): pass", 1),
        ("def f(a):\n if a: pass", 2),
        ("def f(a):\n if a: pass\n else: pass", 2),
        ("def f(a):\n if a: pass\n elif a > 1: pass\n else: pass", 3),
        ("def f(a, b, c):\n if a and b and c: pass", 4),
        ("def f(a, b, c): return a and b or c", 3),
        ("def f(a): return 1 if a else 2", 2),
        ("def f(a):\n for x in a: pass\n else: pass", 2),
        ("async def f(a):\n async for x in a: pass", 2),
        ("def f(a):\n while a: pass", 2),
        ("def f():\n try: pass\n except A: pass\n except B: pass\n else: pass\n finally: pass", 3),
        ("def f(a): assert a", 2),
        ("def f(a):\n with a: pass", 1),
        ("def f(a): return [x for x in a]", 2),
        ("def f(a): return {x for y in a if y for x in y if x}", 5),
        ("def f(a): return lambda: 1 if a else 2", 2),
        ("def f(a):\n match a:\n  case 1: pass\n  case _: pass", 2),
        ("def f(a):\n match a:\n  case 1 | 2 | 3: pass\n  case b: pass", 4),
        ("def f(a):\n match a:\n  case [x] if x: pass\n  case _ if a: pass", 4),
        ("def f(a):\n class C:\n  x = 1 if a else 2", 2),
    ],
)
def test_complexity_is_decisions_plus_one(body, expected):
    assert expected == complexity_of(body)


def test_a_nested_function_counts_on_its_own():
    functions, _ = find_functions(ast.parse("def f(a):\n def g(b):\n  if b: pass\n if a: pass"))
    assert {"f": 2, "f.g": 2} == {function.name: function.complexity for function in functions}


def test_defaults_and_decorators_of_a_nested_function_belong_to_the_function_around_it():
    functions, _ = find_functions(ast.parse("def f(a):\n @(a or b)\n def g(c=1 if a else 2): pass"))
    assert {"f": 3, "f.g": 1} == {function.name: function.complexity for function in functions}


def test_methods_carry_the_names_of_their_classes():
    functions, classes = find_functions(ast.parse("class A:\n class B:\n  def f(self): pass"))
    assert (["A.B.f"], 2) == ([function.name for function in functions], classes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", (0, 0, 0, 0)),
        ("\n", (1, 0, 0, 1)),
        ("a = 1", (1, 1, 0, 0)),
        ("a = 1  # why\n# only a comment\n\n", (3, 1, 1, 1)),
        ('"""Doc.\n\n# in a string\n"""\n', (4, 4, 0, 0)),
        ("a = 1 + \\\n    \\\n    2\n", (3, 3, 0, 0)),
        ("def f(\n    # inside\n    a,\n\n):\n    pass\n", (6, 4, 1, 1)),
        ("a = 1\n\x0c\nb = '\u2028'\n", (3, 2, 0, 1)),
    ],
)
def test_lines_are_code_or_comment_or_blank(text, expected):
    assert dict(zip(("lines", "code", "comment", "blank"), expected, strict=True)) == count_lines(text)


def test_a_row_tells_the_whole_file(tmp_path):
    source = b"# one\nclass A:\n    def f(self, a):\n        return a and 1\n\n    def g(self): pass\n"
    (tmp_path / "a.py").write_bytes(source)
    assert {
        "path": "a.py",
        "bytes": len(source),
        "sha256": hashlib.sha256(source).hexdigest(),
        "lines": 6,
        "code": 4,
        "comment": 1,
        "blank": 1,
        "functions": 2,
        "classes": 1,
        "complexity": 3,
        "worst": [[2, "A.f", 3], [1, "A.g", 6]],
        "error": "",
    } == measure_file("a.py", str(tmp_path))


@pytest.mark.parametrize(
    ("source", "error"),
    [
        (b"def f(:\n", "SyntaxError: invalid syntax (line 1)"),
        (b"a = 1\x00\n", "null bytes"),
        (b"# coding: nowhere\n", "SyntaxError: unknown encoding: nowhere"),
        (b"a = '\xff'\n", "SyntaxError"),
        (b"(" * 5000 + b")" * 5000, "Error"),
        (b"-" * 200_000 + b"1", "Error"),
    ],
)
def test_what_is_no_python_is_a_row_with_the_error(tmp_path, source, error):
    (tmp_path / "a.py").write_bytes(source)
    row = measure_file("a.py", str(tmp_path))
    assert (True, len(source), None) == (error in row["error"], row["bytes"], row["code"])


def test_an_error_is_one_line_and_does_not_name_the_folder(tmp_path):
    (tmp_path / "a.py").write_bytes(b"a = (\n\n'''")
    error = measure_file("a.py", str(tmp_path))["error"]
    assert (False, False) == ("\n" in error, str(tmp_path) in error)


def test_deeply_nested_blocks_are_walked_without_recursion():
    body = "def f(a):\n" + "".join(" " * n + "if a:\n" for n in range(1, 99)) + " " * 99 + "pass\n"
    assert [[99, "f", 1]] == measure_source(body.encode())["worst"]


def test_a_coding_line_and_a_byte_order_mark_are_obeyed(tmp_path):
    (tmp_path / "latin.py").write_bytes(b"# coding: latin-1\na = '\xe9'\n")
    (tmp_path / "bom.py").write_bytes(b"\xef\xbb\xbfa = 1\r\n")
    assert ["", ""] == [measure_file(name, str(tmp_path))["error"] for name in ("latin.py", "bom.py")]


def test_a_file_that_cannot_be_read_is_the_callers_error(tmp_path):
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError):
        measure_file("gone.py", str(tmp_path))


def test_a_name_that_is_no_utf8_is_shown_and_measured(tmp_path):
    name = os.fsdecode(b"caf\xe9.py")
    (tmp_path / name).write_text("a = 1\n")
    assert r"caf\xe9.py" == measure_file(name, str(tmp_path))["path"]


def test_different_names_are_shown_differently():
    assert len({shown(name) for name in (os.fsdecode(b"\xff.py"), r"\xff.py", r"\\xff.py")}) == 3


@pytest.fixture
def threads_switch_while_parsing():
    """A garbage collection with a callback in Python (hypothesis has one) lets another thread run in mid-parse."""
    before = gc.get_threshold()
    callback = lambda phase, info: sum(range(200))  # noqa: E731
    gc.callbacks.append(callback)
    gc.set_threshold(10)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(callback)


def test_threads_may_measure_side_by_side(threads_switch_while_parsing):
    source = b"def f(a):\n" + b"    if a: pass\n" * 20 + b"    return a\n"
    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(measure_source, [source] * 400))
    assert [21] * 400 == [row["complexity"] for row in rows]
