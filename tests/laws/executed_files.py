"""Execution of emitted files with stand-ins for the programs that they start.

The stand-ins write their arguments and environment to files, separated by NUL, so that a test sees
which words the real programs would get. All scripts run with an environment of their own, in a
temporary folder.
"""

from __future__ import annotations

import ast
import csv
import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.compiled import Files

PROGRAMS = ("torchrun", "python", "python3", "accelerate", "deepspeed", "vllm", "ray", "kubectl")
RECORD = """#!/bin/bash
printf '%s\\0' "${0##*/}" "$@" > "$RECORDS/$$.words"
exec cat /proc/self/environ > "$RECORDS/$$.environment"
"""
CANARY = """#!/bin/bash
printf '%s\\n' "$*" >> "$RECORDS/canary"
"""
SRUN = """#!/bin/bash
printf '%s\\0' "${0##*/}" "$@" > "$RECORDS/$$.words"
while [[ ${1:-} == -* ]]; do shift; done
SLURM_PROCID=0 SLURMD_NODENAME=n1 exec "$@" < /dev/null
"""
HOSTNAME = """#!/bin/bash
echo n1
"""
IP = """#!/bin/bash
echo "2: eth0 inet 10.0.0.1/8"
"""
JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_GPUS_ON_NODE": "8",
    "SLURM_CPUS_ON_NODE": "8",
}
START = ("slurm/job.sbatch", "torchrun/launch.sh", "slurm/launch.sh", "deepspeed/launch.sh")
"""Emitted scripts that a user starts, beside those of services."""


@dataclass(frozen=True)
class Records:
    """Words and environment of all programs that the scripts of a plan start."""

    words: frozenset[tuple[str, str]]
    """(file, word) of all arguments, and ``NAME=value`` of the environment."""
    canaries: str
    """Numbers of the fields whose text was executed; files that a text created."""
    errors: str
    """Standard error of the scripts."""


class Folder:
    """Temporary folder with emitted files, stand-ins and a working folder."""

    def __init__(self, root: Path) -> None:
        """Write the stand-ins below ``root``."""
        self.root = root
        tools = dict.fromkeys(PROGRAMS, RECORD) | {"canary": CANARY, "srun": SRUN}
        for name, text in {
            **tools,
            "sbatch": RECORD,
            "ip": IP,
            "hostname": HOSTNAME,
            "scontrol": HOSTNAME,
        }.items():
            _write(root / "bin" / name, text)

    def run(self, files: Files, programs: tuple[str, ...]) -> Records:
        """Write ``files``, and empty files ``programs``, and run all scripts."""
        work, out = self.root / "work", self.root / "out"
        for path, text in files.items():
            _write(out / path, text)
        for name in programs:
            # A script stops if launch.program is not a file.
            path = work / name
            if len(name) < 200 and not name.startswith("/") and ".." not in path.parts:
                _write(path, "")
        found: set[tuple[str, str]] = set()
        errors = ""
        for title, words, environment in [*self._scripts(files), *self._pods(files)]:
            records = self.root / "records"
            _empty(records)
            work.mkdir(exist_ok=True)
            environment = {
                "PATH": f"{self.root}/bin:/usr/bin:/bin",
                "RECORDS": str(records),
                "HOME": str(self.root),
                **environment,
            }
            done = subprocess.run(
                words, cwd=work, env=environment, capture_output=True, stdin=subprocess.DEVNULL
            )
            errors += f"{title}: {done.returncode} {done.stderr.decode('utf-8', 'replace')}\n"
            found |= {(title, word.replace(str(self.root), "ROOT")) for word in _recorded(records)}
            if (records / "canary").exists():
                errors += f"{title}: canary\n"
        created = [path.name for path in self.root.rglob("canary*") if path.parent.name != "bin"]
        return Records(frozenset(found), " ".join(created), errors)

    def _scripts(self, files: Files) -> Iterator[tuple[str, list[str], dict[str, str]]]:
        """Yield (title, command, environment) of the scripts that a user starts."""
        out = self.root / "out"
        job = {**JOB, "SLURM_SUBMIT_DIR": str(self.root / "work"), "PARC_DIR": str(out)}
        for path in files:
            if path in START or path.endswith("serve.sh"):
                yield path, ["bash", str(out / path)], job if path.startswith("slurm/job") else {}

    def _pods(self, files: Files) -> Iterator[tuple[str, list[str], dict[str, str]]]:
        """Yield (title, command, environment) of the containers in manifests."""
        parc = self.root / "parc"
        for path, text in files.items():
            if not path.startswith("kubernetes/"):
                continue
            documents = list(YAML(typ="safe", pure=True).load_all(text))
            contents = {
                key: one for tree in documents for key, one in (tree.get("data") or {}).items()
            }
            for item in _items(documents):
                _write(parc / item["path"], contents[item["key"]])
            for number, container in enumerate(_containers(documents)):
                environment: dict[str, str] = {}
                for one in container.get("env", ()):
                    given = one.get("value", "0")
                    environment[one["name"]] = _expanded(given, environment)
                words = [_expanded(word, environment) for word in container["command"]]
                words = [word.replace("/parc/", f"{parc}/") for word in words]
                yield f"{path} {number}", words, environment


def _expanded(text: str, environment: dict[str, str]) -> str:
    """Expand ``$(NAME)`` as Kubernetes does in commands and values of variables."""

    def value(match: re.Match[str]) -> str:
        whole, name = match.group(0), match.group(1)
        return whole[1:] if whole.startswith("$$") else environment.get(name, whole)

    return re.sub(r"\$?\$\(([^()]*)\)", value, text)


def _containers(tree: Any) -> list[dict[str, Any]]:
    return [one for found in _values("containers", tree) for one in found]


def _items(tree: Any) -> list[dict[str, str]]:
    """Return the files of the mounted ConfigMaps: key and path."""
    return [item for found in _values("configMap", tree) for item in found["items"]]


def _values(name: str, tree: Any) -> Iterator[Any]:
    """Yield the values of all keys ``name`` in a tree."""
    for key, one in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if key == name:
            yield one
        elif isinstance(one, dict | list):
            yield from _values(name, one)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8"))
    path.chmod(0o755)


def _empty(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        if path.name != "canary":
            path.unlink()


def _recorded(folder: Path) -> Iterator[str]:
    for path in folder.iterdir():
        if path.suffix in (".words", ".environment"):
            words = path.read_text("utf-8", "replace").split("\0")
            # The job script sets PARC_HOSTFILE only for hosts other than the planned ones.
            yield from (word for word in words if not word.startswith("PARC_HOSTFILE="))


def leaves(file: str, text: str) -> list[str]:
    """Return the texts and keys in a JSON, YAML, TOML, CSV or Python file; else nothing.

    Values of a ConfigMap are files themselves, which the containers run.
    """
    suffix = file.rpartition(".")[2]
    if suffix in ("json", "lock"):
        return list(_texts(json.loads(text)))
    if suffix == "yaml":
        documents = list(YAML(typ="safe", pure=True).load_all(text))
        return list(_texts([{**one, "data": {}} if "data" in one else one for one in documents]))
    if suffix == "toml":
        return list(_texts(tomllib.loads(text)))
    if suffix == "csv":
        return [cell for row in csv.reader(text.splitlines()) for cell in row]
    if suffix == "py":
        found = [one.value for one in ast.walk(ast.parse(text)) if _is_text(one)]
        # ray/serve.py contains its settings as JSON.
        return [leaf for one in found for leaf in (_texts(_as_json(one)) if "{" in one else [one])]
    return []


def _as_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _texts(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        for name, one in tree.items():
            yield str(name)
            yield from _texts(one)
    elif isinstance(tree, list):
        for one in tree:
            yield from _texts(one)
    elif isinstance(tree, str):
        yield tree


def structure(file: str, text: str) -> str:
    """Return what no text of a spec may change: syntax of a program, elements of a page."""
    if file.endswith(".py"):
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                node.value = ""
        return ast.dump(tree)
    if file.endswith(".html"):
        page = _Elements()
        page.feed(text)
        return " ".join(page.found)
    return ""


class _Elements(HTMLParser):
    """Kinds of elements and attributes that a page contains."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(f"<{tag} {' '.join(name for name, _ in attrs)}>")
