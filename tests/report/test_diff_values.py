"""Tests of the rows of a diff: every field and every line of a file, as readable values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parc.compiler.report.diff.plan_fields import (
    FieldChange,
    flatten,
    hide_in_text,
    is_secret_name,
    plain_numbers,
)
from parc.compiler.report.diff.value_text import clip_pair, value_pair
from tests.cli.specs import parc, write_spec

KUBERNETES = "launch: {kubernetes: {image: x}}\nemit: [kubernetes, megatron, slurm, torchrun]\n"


def difference(folder: Path, *changes: tuple[str, str], code: int = 3) -> str:
    """Return the diff of the small spec and its changed copy."""
    old, new = write_spec(folder, name="old.yaml"), write_spec(folder, *changes, name="new.yaml")
    result = parc("diff", old, new, "--exit-code")
    assert result.exit_code == code, result.output
    return result.stdout


def outputs(folder: Path) -> tuple[Path, Path]:
    """Return two output folders of the same spec."""
    spec = write_spec(folder, ("layout:", f"{KUBERNETES}layout:"))
    found = folder / "one", folder / "two"
    for one in found:
        assert parc("compile", spec, "-o", str(one)).exit_code == 0
    return found


def edit(folder: Path, file: str, old: str, new: str) -> None:
    text = (folder / file).read_text("utf-8")
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("launch", "row"),
    [
        ("setup: [module load cuda]", 'launch.setup        -    ["module load cuda"]'),
        ("master_port: 29777", "launch.master_port  29500  29777"),
        ("program: my_train.py", "launch.program  pretrain_gpt.py  my_train.py"),
        ("slurm: {log_dir: other}", "launch.slurm.log_dir  logs  other"),
        ("slurm: {requeue: false}", "launch.slurm.requeue  true  false"),
        (
            "slurm: {container_image: i, container_mounts: ['/a:/a']}",
            'launch.slurm.container_mounts  -    ["/a:/a"]',
        ),
    ],
)
def test_every_field_of_a_launch_is_compared(tmp_path: Path, launch: str, row: str) -> None:
    text = difference(tmp_path, ("layout:", f"launch: {{{launch}}}\nlayout:"))
    assert row.split() in [line.split()[-len(row.split()) :] for line in text.splitlines()]


def test_comments_and_the_order_of_keys_are_no_changes(tmp_path: Path) -> None:
    swapped = "job: {global_batch: 64, sequence_length: 8192} # same"
    text = difference(tmp_path, ("job: {sequence_length: 8192, global_batch: 64}", swapped), code=0)
    assert "no changes" in text


def test_numbers_inside_a_changed_catalog_entry_are_listed(tmp_path: Path) -> None:
    text = difference(tmp_path, ("node: dgx-h100", "node: {base: dgx-h100, nics: 2}"))
    assert ["cluster.node.nics", "8", "2"] in [line.split() for line in text.splitlines()]


def test_findings_of_both_sides_are_printed_once(tmp_path: Path) -> None:
    old, new = (
        write_spec(
            tmp_path,
            ("layout:", f"launch: {{setup: [x], program: {name}.py}}\nlayout:"),
            name=f"{name}.yaml",
        )
        for name in ("old", "new")
    )
    codes = [line for line in parc("check", old).output.splitlines() if "[PARC-" in line]
    both = [line for line in parc("diff", old, new).stderr.splitlines() if "[PARC-" in line]
    assert codes
    assert sorted(both) == sorted(codes)


def test_an_edit_by_hand_that_no_plan_contains_is_named(tmp_path: Path) -> None:
    one, two = outputs(tmp_path)
    edit(two, "kubernetes/jobset.yaml", "image: x", "image: y")
    result = parc("diff", str(one), str(two), "--exit-code")
    assert result.exit_code == 3
    lines = (two / "kubernetes/jobset.yaml").read_text("utf-8").split("\n")
    place = next(n for n, line in enumerate(lines, 1) if "image: y" in line)
    assert "the same plan, but 1 file differs" in result.stdout
    assert f"kubernetes/jobset.yaml:{place}  image: x  image: y" in result.stdout
    edit(two, "megatron/args.sh", "--lr ", "--lr 9")
    text = parc("diff", str(one), str(two)).stdout
    assert f"kubernetes/jobset.yaml:{place} " in text
    assert "  ~  --lr" in text
    found = json.loads(parc("diff", str(one), str(two), "--format", "json").stdout)
    assert [row["path"] for row in found["files"]] == ["kubernetes/jobset.yaml", "megatron/args.sh"]
    assert all(row["edited"] for row in found["files"])


def test_files_that_only_one_side_has_are_listed(tmp_path: Path) -> None:
    one, two = outputs(tmp_path)
    (two / "slurm/hostfile").unlink()
    result = parc("diff", str(one), str(two), "--exit-code")
    assert (result.exit_code, "removed: slurm/hostfile" in result.stdout) == (3, True)
    assert "added: slurm/hostfile" in parc("diff", str(two), str(one)).stdout


def test_numbers_in_another_notation_and_files_of_users_are_no_changes(tmp_path: Path) -> None:
    one, two = outputs(tmp_path)
    edit(two, "megatron/args.sh", "--clip-grad 1.0", "--clip-grad 1.00")
    (two / "slurm" / "notes.txt").write_text("mine")
    result = parc("diff", str(one), str(two), "--exit-code")
    assert (result.exit_code, "no changes" in result.stdout) == (0, True)


@pytest.mark.parametrize("style", ["text", "json", "markdown"])
def test_values_of_secrets_are_not_repeated(tmp_path: Path, style: str) -> None:
    sides = [
        write_spec(
            tmp_path,
            ("layout:", f"launch: {{env: {{HF_TOKEN: {value}}}}}\nlayout:"),
            name=f"{value}.yaml",
        )
        for value in ("hush1", "hush2")
    ]
    text = parc("diff", *sides, "--format", style).stdout
    assert "HF_TOKEN" in text
    assert "hush1" not in text.replace("hush1.yaml", "")
    assert "hidden new value" in text


def test_an_edited_secret_in_a_file_is_named_without_its_value(tmp_path: Path) -> None:
    one, two = outputs(tmp_path)
    for folder, value in ((one, "hush1"), (two, "hush2")):
        edit(folder, "slurm/job.sbatch", "set -", f"export WANDB_API_KEY={value}\nset -")
    text = parc("diff", str(one), str(two)).stdout
    assert "hush" not in text
    assert "export WANDB_API_KEY=" in text


def test_values_of_secrets_in_commands_are_hidden() -> None:
    texts = {
        "export HF_TOKEN=abc x=1": "export HF_TOKEN=(hidden) x=1",
        "run --api-key 'a b' --lr 1": "run --api-key (hidden) --lr 1",
        '"WANDB_API_KEY": "abc",': '"WANDB_API_KEY": (hidden),',
        "- key: nvidia.com/gpu": "- key: nvidia.com/gpu",
    }
    assert {text: hide_in_text(text) for text in texts} == texts


@pytest.mark.parametrize(
    ("old", "new", "is_equal"),
    [
        ("  --clip-grad 1.0", "  --clip-grad 1.00", True),
        ("  --lr 0.0001", "  --lr 1e-4", True),
        ("  --lr=1", "  --lr=1.0", True),
        ('"lr": 1e-05,', '"lr": 0.00001,', True),
        ("  --lr 0.1", "  --lr 0.10", False),
        ("module load cuda/12.10", "module load cuda/12.1", False),
        ("image: torch:25.0", "image: torch:25", False),
        ("export A=1.0", "export A=1", False),
    ],
)
def test_only_numbers_of_flags_and_keys_may_have_another_notation(
    old: str, new: str, is_equal: bool
) -> None:
    assert (plain_numbers(old) == plain_numbers(new)) is is_equal


def test_names_of_secrets_are_recognized() -> None:
    assert all(
        map(is_secret_name, ("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "PASSWORD"))
    )
    others = ("MAX_TOKENS", "tokens", "keys_as_values", "NCCL_IB_HCA", "TOKENIZERS_PARALLELISM")
    assert not any(map(is_secret_name, others))


@pytest.mark.parametrize(
    ("name", "old", "new", "texts"),
    [
        ("goals.tpot.p99", 0.06, 0.03, ("60.0 ms", "30.0 ms")),
        ("max_concurrency", 272.219, 300, ("272.2", "300")),
        ("launch.slurm.requeue", True, False, ("true", "false")),
        ("launch.master_port", 29500, None, ("29500", "-")),
        ("job.learning_rate", 1e-4, 3e-4, ("0.0001", "0.0003")),
        ("x.memory_bytes", 2**30, 2**30 + 1, ("1,073,741,824", "1,073,741,825")),
        ("launch.args", [], ["--a", "b c"], ("-", '["--a", "b c"]')),
    ],
)
def test_values_are_written_as_in_a_spec(
    name: str, old: object, new: object, texts: tuple[str, str]
) -> None:
    assert value_pair(FieldChange(name, old, new), exact=True) == texts


def test_long_texts_start_at_their_first_difference() -> None:
    hosts = [f"gpu{number:03}" for number in range(60)]
    old, new = clip_pair(",".join(hosts), ",".join([*hosts[:30], "other", *hosts[31:]]))
    assert old.startswith("...gpu028,gpu029,gpu030,")
    assert new.startswith("...gpu028,gpu029,other,")
    assert clip_pair("short", "long " * 30)[1].startswith("long long")


def test_lists_of_pairs_and_of_mappings_are_flattened() -> None:
    tree = {"env": [["A", "1"]], "rows": [{"a": 1}, {"a": 2}], "words": ["x", "y"]}
    found = {"env.A": "1", "rows[0].a": 1, "rows[1].a": 2, "words": ["x", "y"]}
    assert dict(flatten(tree)) == found
