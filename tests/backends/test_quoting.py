"""Text from the spec is never executed, in whichever file it is emitted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parc.backends.shared.render import shell_word
from parc.compiler.ir import Plan
from tests.backends.plans import (
    HOSTILE,
    named_plan,
    nameless_plan,
    with_launch,
    with_names,
    with_slurm,
)
from tests.backends.stage import Stage


def hostile_plan() -> Plan:
    """Return a plan with hostile text in all fields of the user and in host names."""
    plan = with_names(named_plan(), f"a{HOSTILE}", f"b{HOSTILE}", "c", "d")
    plan = with_launch(
        plan,
        program=f"{HOSTILE}.py",
        env=(("EVIL", HOSTILE), ("LINES_", "one\ntwo$(touch pwned)"), ("Q", "'")),
        network_interface=HOSTILE,
    )
    plan = with_slurm(
        plan,
        partition=HOSTILE,
        account=HOSTILE,
        qos=HOSTILE,
        reservation=HOSTILE,
        constraint=HOSTILE,
        exclude=HOSTILE,
        nodelist=HOSTILE,
        array=HOSTILE,
        comment=HOSTILE,
        mail_user=HOSTILE,
        mail_type=HOSTILE,
        extra=(f"--{HOSTILE}", f"--wckey={HOSTILE}"),
        container_image=HOSTILE,
        container_mounts=(f"/a:{HOSTILE}",),
        log_dir=f"logs {HOSTILE}",
    )
    return replace(plan, problem=replace(plan.problem, name=HOSTILE))


def test_a_hostile_spec_launches_as_literal_text(stage: Stage) -> None:
    plan = hostile_plan()
    stage.emit(plan)
    stage.put(f"work/{plan.problem.launch.program}", "")
    done = stage.run("torchrun/launch.sh", HOST=f"a{HOSTILE}")
    assert done.returncode == 0, done.stderr
    words = stage.calls()[0]
    assert words[2:4] == ["--node-rank=0", f"--master-addr=a{HOSTILE}"]
    assert words[5] == plan.problem.launch.program
    seen = stage.environment(0)
    assert seen["EVIL"] == seen["NCCL_SOCKET_IFNAME"] == HOSTILE
    assert seen["LINES_"] == "one\ntwo$(touch pwned)"
    assert not stage.pwned()


def test_a_hostile_job_runs_as_literal_text(stage: Stage) -> None:
    plan = hostile_plan()
    stage.emit(plan)
    stage.put(f"work/{plan.problem.launch.program}", "")
    hosts = [host.name for host in plan.placement.hosts]
    stage.submit(*sorted(hosts))
    logs = stage.root / "work" / f"logs {HOSTILE}"
    assert (logs / "123456.0.hostfile").read_text().split("\n")[:-1] == hosts
    assert not stage.pwned()


def test_a_hostile_job_passes_literal_container_flags_to_slurm(stage: Stage) -> None:
    plan = with_slurm(
        nameless_plan(4),
        container_image=HOSTILE,
        container_mounts=("/a b:/b", "/c:/$(touch pwned)"),
    )
    stage.emit(plan)
    done = stage.submit("n1", "n2", "n3", "n4")
    assert done.returncode == 0, done.stderr
    launch = stage.calls("srun")[-1]
    assert f"--container-image={HOSTILE}" in launch
    out = stage.root / "out"
    assert f"--container-mounts={out}:{out},/a b:/b,/c:/$(touch pwned)" in launch
    assert not stage.pwned()


@pytest.mark.parametrize("name", ["A;touch pwned", "$(touch pwned)", "A B", "A-B", "1A"])
def test_an_invalid_variable_name_stops_the_script_before_it_runs_anything(
    stage: Stage, name: str
) -> None:
    """The rules reject such names; the quoting protects plans that bypass the rules."""
    stage.emit(with_launch(named_plan(), env=((name, "x"),)))
    done = stage.run("torchrun/launch.sh", NODE_RANK="0")
    assert done.returncode != 0
    assert stage.calls() == []
    assert not stage.pwned()


@pytest.mark.parametrize("name", ["A;touch pwned", "a[$(touch pwned)]", "$(touch pwned)", "-p", ""])
def test_an_invalid_inherited_name_stops_the_scripts_before_they_run_anything(
    stage: Stage, name: str
) -> None:
    stage.emit(with_launch(named_plan(), env_inherited=(name,)))
    assert stage.run("torchrun/launch.sh", NODE_RANK="0").returncode != 0
    assert stage.submit("n1", "n2", "n3", "n4").returncode != 0
    assert stage.calls() == stage.calls("srun") == []
    assert not stage.pwned()


@pytest.mark.parametrize("value", ["", "plain", HOSTILE, "a\nb", "-n", "~", "é", "'\"'"])
def test_a_quoted_word_expands_to_itself(stage: Stage, value: str) -> None:
    stage.put("out/say.sh", f"printf '<%s>' {shell_word(value)}\n")
    stage.put("work/x", "")
    assert stage.run("say.sh").stdout == f"<{value}>"


def test_commas_are_quoted_because_shellcheck_reports_them() -> None:
    assert shell_word("969,30,1") == "'969,30,1'"
