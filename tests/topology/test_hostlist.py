import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parc.compiler.topology.hostlist import (
    HostlistError,
    TooManyHosts,
    compress_hosts,
    compress_hosts_in_order,
    expand_host_list,
    natural_key,
)

READ = {
    "n1": "n1",
    "n[1-3]": "n1 n2 n3",
    "n[01-03]": "n01 n02 n03",
    "n[08-11]": "n08 n09 n10 n11",
    "n[99-101]": "n99 n100 n101",
    "n[098-101]": "n098 n099 n100 n101",
    "n[001-2]": "n001 n002",
    "n[3,1,2]": "n3 n1 n2",
    "gb[001-002,020]x": "gb001x gb002x gb020x",
    "r[01-02]n[1-2]": "r01n1 r01n2 r02n1 r02n2",
    "b,a": "b a",
    "a, b ,c": "a b c",
    "[1-2]-a.b": "1-a.b 2-a.b",
    "gpu-node_1.example.org": "gpu-node_1.example.org",
    "n[5]": "n5",
    "n[5-5]": "n5",
}

MALFORMED = {
    "": ("missing", 1),
    "a,,b": ("missing", 3),
    "a,": ("missing", 2),
    ",a": ("missing", 1),
    "r[1-3": ("unclosed", 2),
    "r1-3]": ("without an opening", 5),
    "r[[1]]": ("nested", 3),
    "r[]": ("empty", 3),
    "r[1,]": ("empty", 5),
    "r[5-1]": ("descending", 3),
    "n1,r[1,9-7]": ("descending", 8),
    "r[a-b]": ("not a number", 3),
    "r[1-2-3]": ("not a number", 3),
    "r[-1]": ("not a number", 3),
    "r[1-010]": ("zero padding", 3),
    "r[99999999999999999999]": ("not a number", 3),
    "a b": ("space", 2),
    "r[1, 2]": ("space", 5),
    "$(id)": ("'$'", 1),
    "n1;id": ("';'", 3),
    "n`id`": ("'`'", 2),
    "n1\nn2": ("'\\n'", 3),
    "nöd": ("'ö'", 2),
    "n[\u0661]": ("'\u0661'", 3),
    "-n1": ("letter or a digit", 1),
    "a,.n1": ("letter or a digit", 3),
    "x" * 300: ("300 characters", 1),
}


@pytest.mark.parametrize(("text", "names"), READ.items())
def test_a_host_list_expands_as_slurm_expands_it(text: str, names: str) -> None:
    assert expand_host_list(text) == names.split()


@pytest.mark.parametrize("text", MALFORMED)
def test_a_malformed_host_list_is_rejected_at_the_column_of_the_error(text: str) -> None:
    words, column = MALFORMED[text]
    with pytest.raises(HostlistError) as caught:
        expand_host_list(text)
    assert words in caught.value.message
    assert caught.value.column == column
    assert caught.value.length >= 1


@pytest.mark.parametrize(
    "text",
    ["n[1-200001]", "n[1-999999999999]", "a[1-1000]b[1-1000]c[1-1000]", "n[1-150000],m[1-50001]"],
)
def test_too_many_hosts_are_rejected_before_any_name_is_built(text: str) -> None:
    start = time.process_time()
    with pytest.raises(TooManyHosts):
        expand_host_list(text)
    assert time.process_time() - start < 1


def test_the_limit_itself_is_accepted() -> None:
    assert len(expand_host_list("n[1-200000]")) == 200_000


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("n03 n01 n02", "n[01-03]"),
        ("n9 n10 n11", "n[9-11]"),
        ("n09 n10 n9", "n[09,9-10]"),
        ("r02n2 r01n1 r01n2 r02n1", "r[01-02]n[1-2]"),
        ("r01n1 r01n2 r02n1", "r01n[1-2],r02n1"),
        ("a1.dc2.x a2.dc2.x", "a[1-2].dc2.x"),
        ("n1 n1 n3", "n[1,3]"),
        ("login", "login"),
        ("", ""),
    ],
)
def test_names_compress_to_a_short_list(names: str, text: str) -> None:
    assert compress_hosts(names.split()) == text


def test_folding_keeps_the_given_order() -> None:
    assert compress_hosts_in_order(["n2", "n3", "n1", "m1"]) == "n[2-3,1],m1"


NAMES = st.from_regex(r"[a-c]?[0-9]{1,3}([a.-][0-9]{1,2})?", fullmatch=True)


@given(st.lists(NAMES, min_size=1, max_size=40))
def test_a_compressed_list_expands_to_the_names_in_natural_order(names: list[str]) -> None:
    assert expand_host_list(compress_hosts(names)) == sorted(set(names), key=natural_key)


@given(st.lists(NAMES, min_size=1, max_size=40, unique=True))
def test_a_folded_list_expands_to_the_names_in_their_order(names: list[str]) -> None:
    assert expand_host_list(compress_hosts_in_order(names)) == names


@given(st.text(alphabet="ab01,-[] .$", max_size=24))
def test_any_text_is_read_or_rejected_with_a_column_inside_it(text: str) -> None:
    names, column = read(text)
    assert bool(names) != (1 <= column <= len(text) + 1)
    assert not set("".join(names)) & set("[], $")


def read(text: str) -> tuple[list[str], int]:
    try:
        return expand_host_list(text), 0
    except HostlistError as error:
        return [], error.column


def test_sixteen_thousand_hosts_expand_and_compress_within_two_seconds() -> None:
    start = time.process_time()
    names = expand_host_list("r[0001-1024]n[01-16]")
    assert compress_hosts(names) == "r[0001-1024]n[01-16]"
    assert time.process_time() - start < 2  # measured 0.02 to 0.1, more on a busy machine


def test_numbers_sort_by_value_and_then_by_padding() -> None:
    names = ["n10", "n2", "n02", "m30", "n1x"]
    assert sorted(names, key=natural_key) == ["m30", "n1x", "n02", "n2", "n10"]
