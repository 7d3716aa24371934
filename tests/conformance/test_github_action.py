"""The steps of action.yml run as on a runner: real git, real pip, and a fake of the GitHub API."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.cli.specs import SPEC, write_spec
from tests.github_action import GitHubApi, github_api
from tests.project_files import ROOT

pytestmark = pytest.mark.conformance
STEPS = {
    step["name"]: step
    for step in YAML(typ="safe").load((ROOT / "action.yml").read_text("utf-8"))["runs"]["steps"]
    if "run" in step
}
INSTALL, CHECK, COMPARE = STEPS


def git(folder: Path, *words: str) -> str:
    """Return the output of git in ``folder``, with an identity and without the user's settings."""
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    ran = subprocess.run(
        ("git", *identity, "-C", str(folder), *words),
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull},
    )
    return ran.stdout.strip()


@dataclass
class Runner:
    """Runner of GitHub with PARC installed by the step of the action."""

    action: Path
    temp: Path
    workspace: Path = Path()
    variables: Mapping[str, str] = field(default_factory=dict)

    def run(self, name: str, **expressions: str) -> tuple[int, str]:
        """Run a step; return (exit code, output). ``expressions`` are those of its ``env``."""
        step = STEPS[name]
        files = {"GITHUB_OUTPUT": "output", "GITHUB_STEP_SUMMARY": "summary.md"}
        values = {
            variable: re.sub(r"\$\{\{ (.*?) \}\}", lambda match: expressions[match[1]], text)
            for variable, text in step["env"].items()
        }
        ran = subprocess.run(
            ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]),
            cwd=self.workspace,
            env={
                **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
                **{name: str(self.temp / path) for name, path in files.items()},
                "RUNNER_TEMP": str(self.temp),
                "GITHUB_ACTION_PATH": str(self.action),
                **self.variables,
                **values,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return ran.returncode, ran.stdout

    def check(self, specs: str = "*.yaml", fail_on: str = "error") -> tuple[int, str]:
        """Run the step that checks the specs."""
        return self.run(CHECK, **{"inputs.specs": specs, "inputs.fail-on": fail_on})

    def compare(self, base: str) -> str:
        """Run the step that compares the specs with the commit ``base``; return its output."""
        number = "inputs.comment == 'true' && github.event.number || ''"
        expressions = {
            "inputs.specs": "*.yaml",
            "github.event.pull_request.base.sha": base,
            number: "7",
            "inputs.token": "secret",
        }
        code, output = self.run(COMPARE, **expressions)
        assert code == 0, output
        return output


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """Return a runner with PARC, installed from the files that git has."""
    work = tmp_path_factory.mktemp("runner")
    runner = Runner(work / "action", work / "temp", work)
    runner.temp.mkdir()
    git(ROOT, "checkout-index", "--all", f"--prefix={runner.action}/")
    code, output = runner.run(INSTALL, **{"steps.python.outputs.python-path": sys.executable})
    assert code == 0, output
    return runner


@dataclass
class PullRequest:
    """Repository with a base commit, and its shallow clone on a runner."""

    origin: Path
    base: str
    runner: Runner
    api: type[GitHubApi]

    def push(self) -> None:
        """Commit the changes in the origin, and check the commit out as actions/checkout does."""
        git(self.origin, "add", "--all")
        git(self.origin, "commit", "--quiet", "--allow-empty", "--message", "change")
        url = self.origin.as_uri()
        clone = self.runner.temp / f"clone-{git(self.origin, 'rev-parse', 'HEAD')}"
        git(self.origin, "clone", "--quiet", "--depth=1", url, str(clone))
        self.runner.workspace = clone


@pytest.fixture
def pull_request(installed: Runner, tmp_path: Path) -> Iterator[PullRequest]:
    """Return a pull request whose base has two specs, one with a model file of its own."""
    origin = tmp_path / "origin"
    (origin / "a folder").mkdir(parents=True)
    git(origin, "init", "--quiet", "--initial-branch=main")
    write_spec(origin)
    write_spec(origin / "a folder", ("llama-3-8b", "model.json"), name="-x.yaml")
    (origin / "a folder" / "model.json").write_text(json.dumps(MODEL))
    git(origin, "add", "--all")
    git(origin, "commit", "--quiet", "--message", "base")
    (installed.temp / "summary.md").unlink(missing_ok=True)
    with github_api() as (fake, variables):
        installed.variables = variables
        yield PullRequest(origin, git(origin, "rev-parse", "HEAD"), installed, fake)


MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def test_errors_are_annotations_and_results_of_a_sarif_file(pull_request: PullRequest) -> None:
    write_spec(pull_request.origin, ("tp: 8", "tp: 5"))
    pull_request.push()
    code, output = pull_request.runner.check()
    assert code == 1
    assert "::error title=PARC-D01,file=spec.yaml,line=10," in output
    (line,) = (pull_request.runner.temp / "output").read_text().splitlines()[-1:]
    log = json.loads(Path(line.removeprefix("sarif-file=")).read_text())
    found = log["runs"][0]["results"]
    assert [one["ruleId"] for one in found if one["level"] == "error"] == ["PARC-D01"]
    place = found[0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place["uri"] == "spec.yaml"


def test_good_specs_pass_and_patterns_without_a_file_warn(pull_request: PullRequest) -> None:
    pull_request.push()
    code, output = pull_request.runner.check()
    assert (code, output.splitlines()[-1]) == (0, "PARC checked 2 specs.")
    assert pull_request.runner.check("*.nothing")[0] == 0
    assert "::warning" in pull_request.runner.check("*.nothing")[1]
    assert pull_request.runner.check("\n")[0] == 2


def test_a_change_is_one_comment_that_the_next_push_replaces(pull_request: PullRequest) -> None:
    origin, api = pull_request.origin, pull_request.api
    write_spec(origin, ("tp: 8", "tp: 4"))
    pull_request.push()
    pull_request.runner.compare(pull_request.base)
    (comment,) = api.comments
    assert "### `spec.yaml`\n\n**every rank keeps its GPU" in comment["body"]
    assert "| tp | 8 | 4 |  |" in comment["body"]
    assert "a folder" not in comment["body"]
    assert comment["body"] in (pull_request.runner.temp / "summary.md").read_text()
    # The second push reverts the change, edits a file that a spec names, and adds a spec.
    write_spec(origin)
    write_spec(origin, name="new.yaml")
    (origin / "a folder" / "model.json").write_text(json.dumps({**MODEL, "num_hidden_layers": 16}))
    pull_request.push()
    pull_request.runner.compare(pull_request.base)
    assert [one["id"] for one in api.comments] == [comment["id"]]
    text = api.comments[0]["body"]
    assert "### `a folder/-x.yaml`" in text
    assert "### `new.yaml` was added" in text
    assert "### `spec.yaml`" not in text


def test_a_comment_that_may_not_be_written_is_a_warning(pull_request: PullRequest) -> None:
    pull_request.api.may_write = False
    write_spec(pull_request.origin, ("tp: 8", "tp: 5"))
    pull_request.push()
    output = pull_request.runner.compare(pull_request.base)
    assert "::warning title=PARC::cannot write the comment: HTTP Error 403" in output
    summary = (pull_request.runner.temp / "summary.md").read_text()
    assert "Not compared: the old or the new spec has errors." in summary


def test_an_unchanged_pull_request_has_no_comment(pull_request: PullRequest) -> None:
    (pull_request.origin / "notes.txt").write_text(SPEC)
    pull_request.push()
    pull_request.runner.compare(pull_request.base)
    assert pull_request.api.comments == []
