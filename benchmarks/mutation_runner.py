"""Processes in which the tests of a mutant run, and the map from lines of code to tests."""

from __future__ import annotations

import ast
import functools
import gc
import hashlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.mutation_sites import Mutant, Site

ROOT = Path(__file__).resolve().parent.parent
SLOWER = 4
"""Time limit of a mutant, as a multiple of the unmutated time of its tests; a timeout kills it."""
START = 5.0
"""Seconds added to the time limit, for setup and for other load on the machine."""


class Server:
    """Pytest plugin that runs ``work`` with all collected tests, instead of the tests."""

    def __init__(self, work: Callable[[Server], None]) -> None:
        self.work = work
        self.items: dict[str, pytest.Item] = {}
        self.failed = ""
        self.seconds: dict[str, float] = {}
        self.functions: list[types.FunctionType] = []

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings

        # Without the search for the smallest failing example.
        settings.register_profile(
            "mutants", settings.default, phases=[Phase.explicit, Phase.generate]
        )
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        gc.collect()
        _clear_caches()
        self.functions = _functions()
        gc.freeze()
        self.work(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self.failed = self.failed or report.nodeid

    def run(self, names: Iterable[str], before: Callable[[str], None] = lambda _: None) -> str:
        """Run the tests ``names`` until one fails; return its name or ""."""
        items = [self.items[name] for name in names]
        for item, following in zip(items, [*items[1:], None], strict=True):
            before(item.nodeid)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                return self.failed
        return ""


def in_fork(work: Callable[[], Any], limit: float) -> Any:
    """Return what ``work`` returns in a fork of this process, or "timeout", or "crash"."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.setsid()
        os.close(read)
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        try:
            with os.fdopen(write, "w") as pipe:
                json.dump(work(), pipe)
        finally:
            os._exit(0)
    os.close(write)
    return _result_of(child, read, limit)


def _result_of(child: int, read: int, limit: float) -> Any:
    late = False

    def stop(*_: object) -> None:
        nonlocal late
        late = True
        os.killpg(child, signal.SIGKILL)

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        with os.fdopen(read) as pipe:
            text = pipe.read()
        os.waitpid(child, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    if late:
        return "timeout"
    return json.loads(text) if text else "crash"


class LineMap:
    """Lines that each test executes and the seconds that it takes, stored per test file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds: dict[str, float] = {}
        self.tests: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        """Path -> line -> tests."""

    def load(self, server: Server) -> None:
        """Read the map, after recording the test files that changed since they were recorded."""
        files = defaultdict(list)
        for name in server.items:
            files[name.split("::")[0]].append(name)
        self.folder.mkdir(parents=True, exist_ok=True)
        for file, names in files.items():
            digest = hashlib.sha256((ROOT / file).read_bytes()).hexdigest()[:12]
            stored = self.folder / f"{file.replace('/', '.')}.{digest}.json"
            if not stored.exists():
                found = in_fork(functools.partial(_record, server, names), 1200)
                if isinstance(found, str):
                    print(f"{file}: {found}", flush=True)
                    continue
                stored.write_text(json.dumps(found))
            self._add(json.loads(stored.read_text()))

    def _add(self, found: Any) -> None:
        names = found["names"]
        self.seconds |= found["seconds"]
        for path, lines in found["lines"].items():
            for line, tests in lines.items():
                self.tests[path][int(line)] |= {names[test] for test in tests}

    def runs_at_import(self, site: Site) -> bool:
        """Return True if no test executes the line, other than by an import or in a process."""
        return not site.function or not self.tests[site.path].get(site.line)

    def tests_of(self, site: Site) -> list[str]:
        """Return the tests of a site from the fastest to the slowest.

        The result of a function may be cached, so that only the first of the tests that need it
        executes the line: the other tests of its file come last.
        """
        lines = self.tests[site.path]
        direct = set() if self.runs_at_import(site) else set(lines[site.line])
        if not direct:
            direct = set().union(*lines.values()) or set().union(
                *(tests for path in _importers(site.path) for tests in self.tests[path].values())
            )
        files = {name.split("::")[0] for name in direct}
        other = {name for name in self.seconds if name.split("::")[0] in files} - direct
        by_time: Callable[[str], float] = self.seconds.__getitem__
        return [*sorted(direct, key=by_time), *sorted(other, key=by_time)]


def _record(server: Server, names: list[str]) -> Any:
    import coverage  # type: ignore[import-not-found,unused-ignore]

    source = [str(ROOT / "compiler"), str(ROOT / "backends")]
    tracer = coverage.Coverage(data_file=None, config_file=False, source=source, messages=False)
    tracer.set_option("run:disable_warnings", ["no-data-collected"])
    numbers = {name: str(number) for number, name in enumerate(names)}
    failed = set()
    tracer.start()
    for name in names:
        tracer.switch_context(numbers[name])
        if server.run([name]):
            failed.add(name)
            server.failed = ""
    tracer.stop()
    data = tracer.get_data()
    lines: dict[str, dict[int, list[int]]] = {}
    for file in data.measured_files():
        path = str(Path(os.path.realpath(file)).relative_to(ROOT))
        found = data.contexts_by_lineno(file)
        lines[path] = {
            line: [int(test) for test in tests if test and names[int(test)] not in failed]
            for line, tests in found.items()
        }
    seconds = {name: server.seconds.get(name, 0.0) for name in names if name not in failed}
    return {"names": names, "seconds": seconds, "lines": lines}


def _importers(path: str) -> list[str]:
    module = _module_name(path)
    files = [file for folder in ("compiler", "backends") for file in (ROOT / folder).rglob("*.py")]
    return [str(file.relative_to(ROOT)) for file in files if module in file.read_text()]


def _module_name(path: str) -> str:
    return "parc." + path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def codes_of(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code objects of all functions in ``code``."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from codes_of(constant)


def replace_functions(mutant: Mutant, known: list[types.FunctionType]) -> int:
    """Replace the code of the functions that ``mutant`` changes; return their number."""
    path = ROOT / mutant.site.path
    importlib.import_module(_module_name(mutant.site.path))
    new = _by_place(compile(mutant.tree, str(path), "exec"))
    old = _by_place(compile(path.read_text(encoding="utf-8"), str(path), "exec"))
    # Code objects are equal if all but the file names are.
    changed = {code: new[place] for place, code in old.items() if code != new.get(place, code)}
    number = 0
    for function in [*known, *_functions()]:
        code = function.__code__
        if code in changed and Path(os.path.realpath(code.co_filename)) == path:
            function.__code__ = changed[code]
            number += 1
    return number


def _clear_caches() -> None:
    """Forget the results that were computed with the unmutated code, while tests were imported."""
    for each in gc.get_objects():
        if isinstance(each, functools._lru_cache_wrapper):
            each.cache_clear()


def _functions() -> list[types.FunctionType]:
    return [each for each in gc.get_objects() if isinstance(each, types.FunctionType)]


def _by_place(module: types.CodeType) -> dict[tuple[str, int, int], types.CodeType]:
    places: dict[tuple[str, int, int], types.CodeType] = {}
    for code in codes_of(module):
        number = 0
        while (place := (code.co_qualname, code.co_firstlineno, number)) in places:
            number += 1
        places[place] = code
    return places


class Runner:
    """Runs mutants against their tests."""

    def __init__(self, server: Server, work: Path, seconds: float) -> None:
        self.server = server
        self.work = work
        self.seconds = seconds
        self.copied = False
        """True if the copy of the checkout is that of this run; an older one lacks new tests."""
        self.map = LineMap(work / "lines")
        self.map.load(server)

    def result(self, mutant: Mutant) -> str:
        """Return the test that kills ``mutant``, "timeout", or "" if it survives."""
        names: list[str] = []
        planned = 0.0
        for name in self.map.tests_of(mutant.site):
            planned += self.map.seconds[name]
            if planned > self.seconds and names:
                break
            if name in self.server.items:
                names.append(name)
        limit = START + SLOWER * planned
        if not names:
            return ""
        if not self.map.runs_at_import(mutant.site):
            return str(in_fork(lambda: self._run_changed(mutant, names), limit))
        return self._run_copy(mutant, names, 6 * START + limit)

    def _run_changed(self, mutant: Mutant, names: list[str]) -> str:
        try:
            if not replace_functions(mutant, self.server.functions):
                return "invalid"
        except ValueError:  # another number of free variables
            return "invalid"
        return self.server.run(names)

    def _run_copy(self, mutant: Mutant, names: list[str], limit: float) -> str:
        copy = self.work / "tree"
        if not self.copied:
            shutil.rmtree(copy, ignore_errors=True)
            ignored = shutil.ignore_patterns(".git", ".venv", "build", "__pycache__")
            shutil.copytree(ROOT, copy, symlinks=True, ignore=ignored)
            self.copied = True
        shutil.copy(ROOT / mutant.site.path, copy / mutant.site.path)
        file = copy / mutant.site.path
        # Parameters are part of the names of tests, and can come from the changed table.
        tests = dict.fromkeys(name.split("[")[0] for name in names)
        environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-xq", "-p", "no:cacheprovider", *tests]
        try:
            file.write_text(ast.unparse(mutant.tree), encoding="utf-8")
            done = subprocess.run(
                command, cwd=copy, env=environment, timeout=limit, capture_output=True, text=True
            )
        except subprocess.TimeoutExpired:
            return "timeout"
        finally:
            shutil.copy(ROOT / mutant.site.path, file)
        if not done.returncode:
            return ""
        failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return failed[0] if failed else "import"
