"""Reading settings with their lines from JSON and YAML."""

from __future__ import annotations

import pytest

from parc.compiler.diagnostics import Sink
from parc.compiler.verify.emitted_settings import json_lines, json_settings, yaml_settings
from parc.compiler.verify.program_code import code_digest, parse_program, verify_code
from parc.compiler.verify.read_emitted import MalformedFileError

NESTED = """{
  "a": {"b": [1, {"x": 2}], "c":
    {"d": "}: {"}
  },
  "e": {}, "f.g": 5,
  "h": null
}"""


def test_lines_of_json_keys_are_found_in_objects_but_not_in_lists() -> None:
    found = {"a": 2, "a.b": 2, "a.c": 2, "a.c.d": 3, "e": 5, "'f.g'": 5, "h": 6}
    assert json_lines(NESTED) == found


def test_settings_are_leaves_with_the_line_of_the_innermost_known_section() -> None:
    settings = json_settings("f.json", NESTED)
    values = {"a.b": [1, {"x": 2}], "a.c.d": "}: {", "e": {}, "'f.g'": 5, "h": None}
    assert settings.values == values
    assert settings.line("a.c.z") == 2
    assert settings.line("z") == 1
    assert "a.c" in settings
    assert "a.z" not in settings


def test_a_setting_that_was_not_read_is_foreign() -> None:
    settings = json_settings("f.json", NESTED)
    for path in ("a.b", "e", "h"):
        settings.get(path)
    found = [(one.path, one.value, one.line) for one in settings.unread_settings()]
    assert found == [
        ("problem.launch.args", "a.c.d = '}: {'", 3),
        ("problem.launch.args", "'f.g' = 5", 5),
    ]


def test_yaml_is_read_as_python_programs_read_it() -> None:
    settings = yaml_settings("c.yaml", "a: yes\nb:\n  c: 1e-5\n  d: [x, {z: 1}]\n")
    assert settings.values == {"a": True, "b.c": 1e-5, "b.d": ["x", {"z": 1}]}
    assert [settings.line(path) for path in ("a", "b", "b.c", "b.d")] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: [1\nc: 2\n", 3),
        ("a: 1\n b: 2\n", 2),
        ("a: 1\nb: 'x\n", 3),
        ("- a\n- b\n", 1),
        ("", 1),
        ("a: &x 1\nb: *y\n", 2),
    ],
)
def test_text_that_is_no_yaml_mapping_is_reported_with_its_line(text: str, line: int) -> None:
    with pytest.raises(MalformedFileError, match=r"not (a )?YAML") as caught:
        yaml_settings("c.yaml", text)
    assert (caught.value.file, caught.value.line) == ("c.yaml", line)


PROGRAM = '''"""Doc."""
import x  # a comment


def f(a):
    """Doc."""
    try:
        g(a, "text")
    except ValueError:
        return 1
    match a:
        case 1:
            return 2
    return 3
'''


def first_difference(text: str) -> tuple[int, str] | None:
    """Return line and code of the first statement that differs from PROGRAM."""
    digest = code_digest(parse_program("p.py", PROGRAM)).code
    sink = Sink()
    verify_code("p.py", parse_program("p.py", text), digest, sink)
    for found in sink.diagnostics:
        assert found.code == "PARC-A18"
        assert found.span is not None
        message = found.finding.message
        return found.span.line, message.removeprefix(
            "the statement is not in the program that PARC emits: "
        )
    return None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Doc."""\n', ""),
        ("# a comment", "# another"),
        ("f(a):", "f( a ) :"),
        ("import", "\nimport"),
    ],
)
def test_comments_docstrings_and_format_are_not_part_of_the_code(old: str, new: str) -> None:
    assert first_difference(PROGRAM.replace(old, new, 1)) is None


@pytest.mark.parametrize(
    ("old", "new", "line", "code"),
    [
        ("import x", "import y", 2, "import y"),
        ('"text"', '"test"', 8, "g(a, 'test')"),
        ("ValueError", "OSError", 9, "except OSError:"),
        ("return 1", "return 0", 10, "return 0"),
        ("case 1:", "case 2:", 12, "case 2:"),
        ("return 2", "return 4", 13, "return 4"),
        ("    return 3\n", "", 13, "the program ends before the code that PARC emits"),
        ("return 3\n", "return 3\nf(1)\n", 15, "f(1)"),
        ("    return 3", "return 3", 14, "return 3"),
    ],
)
def test_a_changed_statement_is_found_at_its_line(old: str, new: str, line: int, code: str) -> None:
    assert first_difference(PROGRAM.replace(old, new, 1)) == (line, code)


def test_a_text_that_is_not_python_is_reported_with_its_line() -> None:
    with pytest.raises(MalformedFileError, match="not a Python program") as caught:
        parse_program("p.py", "a = 1\nb = (\n")
    assert caught.value.line == 2
