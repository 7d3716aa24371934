"""Emitted settings are read back with their lines, and compared with plan.json.

They include the directives of a site, set-up commands and inherited variables of scripts.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from parc.backends.rankmap.verify_document import read_document_settings
from parc.backends.verifier import DerivedSetting
from parc.compiler.diagnostics import Sink
from parc.compiler.verify.program_code import code_digest, parse_program, verify_code
from parc.compiler.verify.read_emitted import MalformedFileError
from parc.compiler.verify.verify_plan import verify_artifacts
from parc.compiler.verify.verify_settings import (
    is_same_value,
    json_lines,
    json_settings,
    verify_settings,
    yaml_settings,
)
from tests import compiled
from tests.compiled import Files, Spec, changed, messages_of, planned

NESTED = """{
  "a": {"b": [1, {"x": 2}], "c":
    {"d": "}: {"}
  },
  "e": {}, "f.g": 5,
  "h": null
}"""
PLAN = {"layout": {"tp": 2, "recompute": {"granularity": "none"}}, "problem": {"job": {"a": 1e-8}}}
SITE = {
    "constraint": "a100&ib",
    "exclude": "n[1-3]",
    "nodelist": "n9",
    "array": "1-4%1",
    "comment": "the x",
    "mail": {"user": "a@b.c"},
    "extra": ["--gres=lustre:1", "--nice"],
}
LAUNCH = {
    "setup": ["module load cuda/12", "export FOO=1 # don't", "set -u"],
    "env": {"KEY": {"from": "environment"}, "NCCL_IB_TIMEOUT": {"from": "environment"}, "A": "b"},
    "slurm": SITE,
}
TRAINING = {
    "parc": 1,
    "name": "site",
    "model": "llama-3-8b",
    "cluster": {"node": "dgx-h100", "nodes": 2},
    "job": {"sequence_length": 8192, "global_batch": 64},
    "layout": {"tp": 2, "pp": 1},
    "emit": ["megatron", "slurm", "torchrun"],
    "launch": LAUNCH,
}
SERVING = {
    "parc": 1,
    "name": "site",
    "model": "mixtral-8x7b",
    "cluster": {"node": "dgx-h100", "nodes": 2},
    "job": {
        "kind": "serve",
        "traffic": {"input_tokens": 1024, "output_tokens": 128, "concurrency": 8},
        "max_model_len": 4096,
    },
    "layout": {"tp": 8, "pp": 2, "ep": "on"},
    "emit": ["slurm", "vllm"],
    "launch": LAUNCH,
}
JOB, ORDER = "slurm/job.sbatch", "slurm/order_hosts.sh"
LAUNCHER, SERVER = "torchrun/launch.sh", "vllm/serve.sh"
LINES = 'export "${name?}"\n'
EDITS = [
    (JOB, "--constraint=", "--constraint=v"),
    (JOB, '--exclude="n[1-3]"', "--exclude=n1"),
    (JOB, "--nodelist=n9", "--nodelist=n8"),
    (JOB, "--array=1-4%1", "--array=1-4"),
    (JOB, '--comment="the x"', "--comment=x"),
    (JOB, "--mail-user=a@b.c", "--mail-user=x@b.c"),
    (JOB, "--mail-type=END,FAIL", "--mail-type=ALL"),
    (JOB, "--gres=lustre:1", "--gres=lustre:2"),
    (JOB, "#SBATCH --nice\n", ""),
    (JOB, ".%A_%a.out", ".%j.out"),
    (JOB, "in KEY NCCL_IB_TIMEOUT;", "in KEY;"),
    (ORDER, "SLURM_GPUS SLURM_GPUS_PER_TASK", "SLURM_GPUS_PER_TASK"),
    (ORDER, "SLURM_GPU_BIND ", ""),
    (JOB, "gpus=8", "gpus=1"),
    (ORDER, " -ge $gpus ]]", " -ge 1 ]]"),
    (JOB, "submitted=${submitted%%$'\\n'*}", "submitted="),
]
LAUNCHER_EDITS = [
    ("module load cuda/12\n", "module load cuda/11\n"),
    ("module load cuda/12\n", ""),
    ("export FOO=1 # don't\n", "export FOO=2 # don't\n"),
    ("set -u # end of launch.setup\n", "true\nset -u # end of launch.setup\n"),
    ("set -u # end of launch.setup\n", ""),
    ("set +u # launch.setup", "true # launch.setup"),
    ("in KEY NCCL_IB_TIMEOUT;", "in NCCL_IB_TIMEOUT;"),
    ("in KEY NCCL_IB_TIMEOUT;", "in KEY NCCL_IB_TIMEOUT PATH;"),
    (LINES, ""),
    ("export A=b\n", "export A=b KEY=secret\n"),
    ("export A=b\n", "export A=b\nexport KEY=secret\n"),
    ("export A=b\n", "export A=b\nexport NCCL_IB_TIMEOUT=22\n"),
]


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
        return found.span.line, message.partition(" is not in the emitted program: ")[2] or message
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


def messages(*found: DerivedSetting) -> list[str]:
    sink = Sink()
    verify_settings(PLAN, found, sink)
    assert {one.code for one in sink.diagnostics} <= {"PARC-A14"}
    return [one.finding.message for one in sink.diagnostics]


def test_equal_settings_are_not_reported() -> None:
    assert (
        messages(DerivedSetting("layout.tp", 2, "f"), DerivedSetting("problem.job.a", 1.0e-08, "f"))
        == []
    )


def test_a_setting_with_another_value_is_reported_at_its_line() -> None:
    sink = Sink()
    text = "\n" * 6 + "  --tp=4"
    verify_settings(
        PLAN, [DerivedSetting("layout.tp", 4, "args.sh", 7, "--tp 4")], sink, {"args.sh": text}
    )
    (found,) = sink.diagnostics
    assert found.finding.message == "layout.tp: line 7 has --tp=4, the plan has 2"
    assert found.span is not None
    assert (found.span.file, found.span.line) == ("args.sh", 7)


def test_an_omitted_setting_that_the_plan_sets_is_reported() -> None:
    found = messages(DerivedSetting("layout.recompute.granularity", "full", "f"))
    assert found == [
        "layout.recompute.granularity: f does not set it (meaning 'full'), the plan has 'none'"
    ]


def test_a_path_that_the_plan_lacks_is_reported() -> None:
    assert messages(DerivedSetting("layout.tp.x", 1, "f")) == [
        "plan.json has no layout.tp.x, which is set in f"
    ]


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [
        (True, 1, False),
        (1, 1.0, True),
        (1, "1", False),
        ([1, [2]], (1, (2,)), True),
        ([1], [1, 2], False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"b": 1}, False),
        (None, 0, False),
        (0.1, 0.1000001, False),
    ],
)
def test_values_are_compared_by_type_and_number(expected: Any, found: Any, same: bool) -> None:
    assert is_same_value(expected, found) is same


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            DerivedSetting("problem.job", "A=1", "f", 2, "A=1", needed="A=2"),
            "job: line 2 has export A=1, the plan needs A=2",
        ),
        (
            DerivedSetting("problem.job", "A=1", "f", 2, "A=1", needed=""),
            "job: line 2 has A=1, which the plan does not need",
        ),
        (
            DerivedSetting("problem.job", "", "f", needed="A=2"),
            "job: the plan needs A=2, which is not in f",
        ),
        (
            DerivedSetting("problem.job", f"A={'x ' * 40}y", "f", 3, "A", needed=f"A={'x ' * 40}z"),
            "job: line 3 has ...y, the plan needs ...z",
        ),
        (
            DerivedSetting("layout.tp", 4, "f", 3, "tp 4"),
            "layout.tp: line 3 has tp 4, the plan has 2",
        ),
    ],
)
def test_a_finding_names_the_setting_in_the_file_and_the_plan(
    found: DerivedSetting, message: str
) -> None:
    sink = Sink()
    # Line 3 is too long to be shown.
    verify_settings(PLAN, [found], sink, {"f": f"a\n  export A=1\n{'tp=4 ' * 40}"})
    assert [one.finding.message for one in sink.diagnostics] == [message]


def test_hosts_of_a_large_rack_are_compared_in_linear_time() -> None:
    """Searching the list of domains for each of 20,000 hosts would take minutes."""
    names = [f"n{index}" for index in range(20_000)]
    hosts = [{"name": name, "rack": "r1", "nvlink_domain": name} for name in names]
    empty = {"groups": {}, "ranks": {}, "sizes": {}}
    text = json.dumps({"format": 1, "hosts": hosts, **empty})
    rack = {"name": "r1", "hosts": names, "nvlink_domains": names}
    other = {"name": "r2", "hosts": ["m1"], "nvlink_domains": ["m1"]}
    settings = read_document_settings(text, serving=False)
    (racks,) = (one for one in settings if one.path == "problem.cluster.racks")
    assert racks.accepts is not None
    assert racks.accepts([rack, other])
    assert not racks.accepts([{**rack, "nvlink_domains": names[::-1]}, other])
    assert not racks.accepts([{**rack, "hosts": names[::-1]}, other])
    assert not racks.accepts([{**rack, "name": "r2"}, {**other, "name": "r1"}])


@cache
def emitted(serving: bool) -> Files:
    return files_of_plan(SERVING if serving else TRAINING)


def files_of_plan(spec: Spec) -> Files:
    plan, sink = planned(spec)
    assert plan is not None, messages_of(sink)
    return compiled.emitted(plan)


def findings(files: Files) -> list[str]:
    """Return the codes of the verification without checksums."""
    sink = Sink()
    verify_artifacts({path: text for path, text in files.items() if path != "parc.lock"}, sink)
    return [found.code.removeprefix("PARC-") for found in sink.diagnostics]


@pytest.mark.parametrize("serving", [False, True])
def test_scripts_of_a_plan_with_all_fields_are_verified(serving: bool) -> None:
    assert findings(emitted(serving)) == []


@pytest.mark.parametrize(
    ("serving", "file", "old", "new"),
    [
        *((False, *edit) for edit in EDITS),
        *((False, LAUNCHER, *edit) for edit in LAUNCHER_EDITS),
        *((True, SERVER, *edit) for edit in LAUNCHER_EDITS),
    ],
)
def test_each_edit_is_named(serving: bool, file: str, old: str, new: str) -> None:
    files = emitted(serving)
    assert files[file].count(old) >= 1
    assert findings({**files, file: files[file].replace(old, new, 1)}) != []


@pytest.mark.parametrize("serving", [False, True])
def test_a_foreign_command_before_the_launch_is_named(serving: bool) -> None:
    plain = changed(SERVING if serving else TRAINING, {"launch": {}})
    files = files_of_plan(plain)
    file = SERVER if serving else LAUNCHER
    block = "set +u # launch.setup\ntrue\nset -u # end of launch.setup\n"
    text = files[file].replace("set -euo pipefail\n", f"set -euo pipefail\n{block}", 1)
    assert findings({**files, file: text}) != []


def test_no_file_contains_more_than_the_name_of_an_inherited_variable() -> None:
    """The spec itself cannot contain a value, so that no file can."""
    for text in emitted(False).values():
        assert "KEY=" not in text
