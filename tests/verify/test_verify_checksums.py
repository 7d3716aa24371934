"""Changes of a directory are found by contradictions, or by the digests of its lock."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.compiler.diagnostics import Sink
from parc.compiler.report.json.output_directory import decode_files
from parc.compiler.verify.verify_checksums import LOCK, verify_checksums
from parc.compiler.verify.verify_plan import verify_artifacts
from tests.compiled import example_files
from tests.property_settings import examples

Contents = dict[str, bytes]
NAMES = (
    *("gpt2-small", "mixtral-8x7b-deepspeed", "llama-3-8b-fsdp", "llama-3-70b-torchtitan"),
    *("llama-3-70b-kubernetes", "llama-3.1-405b-serve-kubernetes"),
)
"""Examples of the frameworks and the kinds of launch."""
ARGS, HOSTS = "megatron/args.sh", "slurm/hostfile"


@cache
def written(name: str) -> Contents:
    return {path: text.encode() for path, text in example_files(name).items()}


SMALL = written("gpt2-small")


def found(contents: Contents) -> set[tuple[str, str]]:
    """Return (code, file) per finding of ``parc verify`` on a directory."""
    sink = Sink()
    verify_artifacts(decode_files(contents), sink)
    verify_checksums(contents, sink)
    return {
        (one.code.removeprefix("PARC-"), one.span.file if one.span else "")
        for one in sink.diagnostics
    }


def edited(contents: Contents, file: str, at: int, by: int = 1) -> Contents:
    """Return ``contents`` with one byte of ``file`` changed."""
    data = contents[file]
    at %= len(data)
    return contents | {file: data[:at] + bytes([(data[at] + by) % 256]) + data[at + 1 :]}


def relocked(contents: Contents, change: Callable[[dict[str, Any]], object]) -> Contents:
    """Return ``contents`` with ``change`` applied to the tree of the lock."""
    lock = json.loads(contents[LOCK])
    change(lock)
    return contents | {LOCK: json.dumps(lock).encode()}


@pytest.mark.parametrize("name", NAMES)
def test_written_files_have_no_finding_and_a_change_of_any_file_has_one(name: str) -> None:
    contents = written(name)
    assert found(contents) == set()
    for number, file in enumerate(sorted(contents)):
        assert found(edited(contents, file, 7919 * (number + 1))), file


@examples(50)
@given(st.sampled_from(sorted(SMALL)), st.integers(0, 10**6), st.integers(1, 255))
def test_a_change_of_any_byte_is_found(file: str, at: int, by: int) -> None:
    assert found(edited(SMALL, file, at, by))


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_is_named(name: str) -> None:
    contents = written(name)
    for file in contents:
        rest = {path: data for path, data in contents.items() if path != file}
        assert ("A03", file) in found(rest)


def test_an_edit_of_a_comment_is_found_by_the_digest() -> None:
    comment = SMALL[ARGS].replace(b"# batch", b"# the batch", 1)
    assert found(SMALL | {ARGS: comment}) == {("A10", ARGS)}


def test_an_edit_of_a_learning_rate_is_found_by_its_value() -> None:
    rate = SMALL[ARGS].replace(b"--lr ", b"--lr 9", 1)
    assert found(SMALL | {ARGS: rate}) == {("A14", ARGS)}


def test_a_changed_file_with_a_contradiction_is_named_once() -> None:
    hosts = SMALL[HOSTS].replace(b"\n", b"x\n", 1)
    assert found(SMALL | {HOSTS: hosts}) == {("A02", HOSTS)}


def test_an_edited_file_and_the_file_it_contradicts_are_both_named() -> None:
    old = b"--tensor-model-parallel-size 1"
    assert old in SMALL[ARGS]
    more = SMALL[ARGS].replace(old, b"--tensor-model-parallel-size 2")
    codes = found(SMALL | {ARGS: more})
    assert ("A14", ARGS) in codes
    assert any(code < "A10" for code, _ in codes)


def test_a_lock_without_digests_is_reported() -> None:
    old = relocked(SMALL, lambda lock: (lock.pop("files"), lock.pop("lock_digest")))
    assert found(old) == {("A11", LOCK)}
    assert found(edited(old, "report.html", 99)) == {("A11", LOCK)}


def test_files_with_crlf_line_ends_get_one_finding() -> None:
    contents = {path: data.replace(b"\n", b"\r\n") for path, data in SMALL.items()}
    sink = Sink()
    verify_checksums(contents, sink)
    (one,) = sink.diagnostics
    assert one.code == "PARC-A10"
    assert "CRLF line ends" in one.finding.message
    assert ("A10", HOSTS) in found(contents | {HOSTS: SMALL[HOSTS] + b"\r\n"})


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda lock: lock["decisions"]["layout"].update(micro_batch=99), {("A10", LOCK)}),
        (lambda lock: lock.pop("lock_digest"), {("A10", LOCK)}),
        (lambda lock: lock.pop("files"), {("A10", LOCK)}),
        (lambda lock: lock.update(lock_digest=None), {("A10", LOCK)}),
        (lambda lock: lock["files"].update({ARGS: "0"}), {("A10", LOCK), ("A10", ARGS)}),
        (lambda lock: lock["files"].update({ARGS: None}), {("A10", LOCK), ("A10", ARGS)}),
        (lambda lock: lock["files"].pop(ARGS), {("A10", LOCK)}),
        (lambda lock: lock["files"].update({"x/y": "0"}), {("A10", LOCK), ("A03", "x/y")}),
        (lambda lock: lock["files"].update({"\ud800": "0"}), {("A04", LOCK)}),
        (lambda lock: lock.update(files=[]), {("A04", LOCK)}),
    ],
)
def test_an_edit_of_the_lock_is_found(
    change: Callable[[dict[str, Any]], object], wanted: set[tuple[str, str]]
) -> None:
    assert found(relocked(SMALL, change)) - {("A12", "")} == wanted


@pytest.mark.parametrize(
    ("file", "codes"),
    [
        ("slurm/notes.txt", {("A12", "")}),
        ("plan.old.json", {("A12", "")}),
        ("megatron/.args.sh.swp", {("A12", "")}),
        ("logs/1.0.log", set()),
        ("slurm-17.out", set()),
        ("notes.txt", set()),
    ],
)
def test_foreign_files_are_named_if_a_compile_would_remove_them(
    file: str, codes: set[tuple[str, str]]
) -> None:
    assert found(SMALL | {file: b"\xff\x00"}) == codes


def test_the_first_of_many_foreign_files_are_named() -> None:
    sink = Sink()
    verify_checksums(SMALL | {f"slurm/{n}\udc80": b"" for n in range(9)}, sink)
    (one,) = sink.diagnostics
    assert one.finding.message.endswith(
        r"'slurm/0\udc80', 'slurm/1\udc80', 'slurm/2\udc80' and 6 more"
    )


@examples(30)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda s: (
            st.lists(s)
            | st.dictionaries(st.sampled_from(["files", "lock_digest", "decisions", ARGS]), s)
        ),
    )
)
def test_no_lock_raises(tree: object) -> None:
    if isinstance(tree, dict):
        tree = {**json.loads(SMALL[LOCK]), **tree}
    assert found(SMALL | {LOCK: json.dumps(tree).encode()})
