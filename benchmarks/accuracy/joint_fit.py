"""Joint fit of the parameters of all hardware classes.

A parameter has one value that all classes share: the mean of its prior, which no training run set.
A class that lists the parameter in its file has its own value, as have the classes whose rows are
``like`` it. The prior of an own value is centered on the value that it replaces, so that a class
with few rows stays close to it (partial pooling).

The fit works on linear approximations of the logarithms of the predictions. The runs of one model
on one cluster have a common factor, because they share their errors (random effect). The
differences between such runs therefore count in full, but their mean no more than two or three
runs. The solver eliminates the factors from the normal equations, because there are more factors
than parameters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import exp, log, sqrt
from statistics import median

from benchmarks.accuracy.cases import Case
from benchmarks.accuracy.hardware_classes import own_parameters, parent_class
from benchmarks.accuracy.predict import PRIORS, predict, shipped
from benchmarks.accuracy.sources import source_of
from parc.compiler.cost.fitting import (
    NOISE,
    cholesky_inverse,
    huber_weight,
    linearize_runs,
    solve_linear_system,
)

SITE_SPREAD = 0.05
"""Spread of the logarithm of the common factor of a model and cluster. Similar machines and
versions of software differ by some per cent."""
SITE_HUBER = 2.0
"""Common factor, in units of ``SITE_SPREAD``, above which its cost rises linearly."""
OUTLIER = 2.0
"""Error factor from which a row is left out of a fit as untuned or misreported."""
SITE_OUTLIER = 1.3
"""Factor between a multi-host row and the median of its model and cluster from which the row is
left out, because of other jobs on the network or a slow host. Such rows are still predicted."""
MAX_MOVE = 0.5
"""Largest change of a log parameter before the predictions are linearized again."""
LINEARIZATIONS = 6
FOLDS = 3
"""Smallest number of sources of a class whose folds are sources."""
FIXED = 1e-4
"""Spread of the logarithm of a shared value, which is not fitted."""
REWEIGHTINGS = 8
"""Maximum number of solutions of the normal equations, between which the Huber weights change."""

Key = tuple[str, str]
"""(class that has the value or "" for all classes, parameter)."""
Structure = frozenset[Key]
"""Own parameters of classes."""
Logs = dict[Key, float]


@dataclass(frozen=True, slots=True)
class Line:
    """Linear approximation of one row around the parameters ``Lines.at``."""

    case: Case
    offset: float
    """log(predicted / measured) if the logarithms of all parameters were zero."""
    slopes: tuple[float, ...]
    """Derivatives of the log prediction by the log parameters, in the order of ``PRIORS``."""
    kept: bool
    """False for outliers, which fits leave out."""


@dataclass(frozen=True, slots=True)
class JointFit:
    """Fitted values of all classes."""

    logs: Logs
    spreads: dict[Key, float]
    structure: Structure
    lines: Sequence[Line]

    def parameters(self, hardware: str) -> dict[str, float]:
        """Return the value of every parameter of a class."""
        return class_values(hardware, self.structure, self.logs)

    def without(self, key: Key) -> JointFit:
        """Return a fit without the value ``key``.

        The class then uses the value that it inherits.
        """
        logs = {other: value for other, value in self.logs.items() if other != key}
        smaller = replace(self, structure=self.structure - {key}, logs=logs)
        return replace(smaller, logs=solve(smaller.lines, smaller))


def shipped_structure(classes: Iterable[str]) -> Structure:
    """Return the own parameters that the files of ``classes`` and of their parents list."""
    every = {ancestor for name in classes for ancestor in ancestors(name)}
    return frozenset(
        (name, parameter)
        for name in every
        for parameter in own_parameters(name)
        if parameter in PRIORS
    )


def ancestors(hardware: str) -> tuple[str, ...]:
    """Return the class and the classes that its file inherits from, nearest first."""
    parent = parent_class(hardware)
    return (hardware, *(ancestors(parent) if parent else ()))


def key_of(hardware: str, parameter: str, structure: Structure) -> Key:
    """Return the key whose value ``hardware`` uses for ``parameter``."""
    owners = (name for name in ancestors(hardware) if (name, parameter) in structure)
    return (next(owners, ""), parameter)


def class_values(hardware: str, structure: Structure, logs: Logs) -> dict[str, float]:
    """Return the value of every parameter of a class."""
    return {name: exp(logs[key_of(hardware, name, structure)]) for name in PRIORS}


def fit_jointly(cases: Sequence[Case], structure: Structure | None = None) -> JointFit:
    """Return the fit of all classes to ``cases``.

    The predictions are linearized at the shipped values first, then at the fitted ones. A value
    that moves back moves only half as far: a linearization can be wrong on one side of a value at
    which a term of the step becomes exposed, and would alternate between both sides.
    """
    classes = sorted({case.generation for case in cases})
    own = shipped_structure(classes) if structure is None else structure
    logs = start_values(own)
    before = dict.fromkeys(logs, 0.0)
    for _ in range(LINEARIZATIONS):
        lines = linearize(cases, own, logs)
        found = solve(lines, JointFit(logs, {}, own, lines))
        moves = {key: min(max(found[key] - logs[key], -MAX_MOVE), MAX_MOVE) for key in logs}
        moves = {key: move / 2 if move * before[key] < 0 else move for key, move in moves.items()}
        logs = {key: value + moves[key] for key, value in logs.items()}
        before = moves
    lines = linearize(cases, own, logs)
    fit = JointFit(logs, {}, own, lines)
    return replace(fit, spreads=_spreads(fit))


def start_values(structure: Structure) -> Logs:
    """Return the shared values, and the shipped own values of classes."""
    logs = {("", name): log(prior.center) for name, prior in PRIORS.items()}
    return {**logs, **{key: log(shipped(key[0])[key[1]]) for key in structure}}


def linearize(cases: Sequence[Case], structure: Structure, logs: Logs) -> list[Line]:
    """Return the linear approximations of all cases around ``logs``."""
    found: dict[str, Line] = {}
    for hardware, rows in cases_by_class(cases).items():
        values = class_values(hardware, structure, logs)
        point = [log(value) for value in values.values()]
        kept = kept_rows(rows, predict(rows, values))
        for case, line in zip(rows, linearize_runs(partial(predict, rows), values), strict=True):
            at = sum(slope * value for slope, value in zip(line.slopes, point, strict=True))
            offset = line.log_seconds - at - log(case.seconds)
            found[case.run.id] = Line(case, offset, line.slopes, case.run.id in kept)
    return [found[case.run.id] for case in cases]


def cases_by_class(cases: Iterable[Case]) -> dict[str, list[Case]]:
    """Return the cases of each hardware class."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.generation, []).append(case)
    return groups


def solve(lines: Sequence[Line], start: JointFit) -> Logs:
    """Return the values that minimize the Huber loss of ``lines`` plus the priors.

    The search begins at the values of ``start``, and has its structure.
    """
    system = _NormalEquations(lines, start)
    logs = start.logs
    for _ in range(REWEIGHTINGS):
        found = system.clamp_to_bounds(solve_linear_system(*system.normal_equations(logs)))
        moved = max(abs(found[key] - logs[key]) for key in found)
        logs = found
        if moved < 1e-3:
            break
    return logs


def _spreads(fit: JointFit) -> dict[Key, float]:
    """Return the standard deviation of the logarithm of each value (Laplace approximation)."""
    system = _NormalEquations(fit.lines, fit)
    inverse = cholesky_inverse(system.normal_equations(fit.logs)[0])
    return {key: sqrt(inverse[at][at]) for at, key in enumerate(system.keys)}


class _NormalEquations:
    """Normal equations of the fit. The vector of unknowns has the order of ``keys``."""

    def __init__(self, lines: Sequence[Line], shape: JointFit) -> None:
        structure = shape.structure
        self.keys = [("", name) for name in PRIORS] + sorted(structure)
        index = {key: at for at, key in enumerate(self.keys)}
        columns: dict[str, list[int]] = {}
        self.groups: dict[tuple[str, ...], list[tuple[Line, list[tuple[int, float]]]]] = (
            defaultdict(list)
        )
        for line in lines:
            if line.kept:
                hardware = line.case.generation
                if hardware not in columns:
                    columns[hardware] = [index[key_of(hardware, p, structure)] for p in PRIORS]
                row = [
                    (at, slope)
                    for at, slope in zip(columns[hardware], line.slopes, strict=True)
                    if slope
                ]
                self.groups[hardware, *_model_and_cluster(line.case)].append((line, row))
        self.above = {index[key]: index[_inherited(key, structure)] for key in structure}

    def normal_equations(self, logs: Logs) -> tuple[list[list[float]], list[float]]:
        """Return (curvature, right side) with the Huber weights at ``logs``."""
        here = [logs[key] for key in self.keys]
        size = len(here)
        curvature = [[0.0] * size for _ in range(size)]
        right = [0.0] * size
        for members in self.groups.values():
            _add_group(members, here, curvature, right)
        for at, (_, name) in enumerate(self.keys):
            prior, above = PRIORS[name], self.above.get(at)
            spread = FIXED if above is None else prior.spread
            pull = 1 / spread**2
            curvature[at][at] += pull
            if above is None:
                right[at] += pull * log(prior.center)
            else:
                curvature[above][above] += pull
                curvature[at][above] -= pull
                curvature[above][at] -= pull
        return curvature, right

    def clamp_to_bounds(self, values: Sequence[float]) -> Logs:
        """Return the values by key, limited to the bounds of their priors."""
        return {
            key: log(PRIORS[key[1]].clamp(exp(min(max(value, -50.0), 50.0))))
            for key, value in zip(self.keys, values, strict=True)
        }


def _inherited(key: Key, structure: Structure) -> Key:
    """Return the key that the class would use without its own value."""
    return key_of(key[0], key[1], structure - {key})


def _add_group(
    members: Sequence[tuple[Line, list[tuple[int, float]]]],
    here: Sequence[float],
    curvature: list[list[float]],
    right: list[float],
) -> None:
    """Add the rows of a model and cluster, whose common factor is eliminated (Schur complement)."""
    errors = [line.offset + sum(s * here[at] for at, s in row) for line, row in members]
    # The common factor at the present values, for the Huber weights, and the Huber weight of the
    # factor itself, so that software that the cost model does not know moves no parameter by much.
    pull = 1 / SITE_SPREAD**2
    factor = _common_factor(errors, pull)
    pull *= min(1.0, SITE_HUBER * SITE_SPREAD / abs(factor)) if factor else 1.0
    factor = _common_factor(errors, pull)
    total, mean_slopes, mean_error = pull, defaultdict[int, float](float), 0.0
    for (line, row), error in zip(members, errors, strict=True):
        weight = huber_weight(error + factor)
        total += weight
        mean_error += weight * line.offset
        for at, slope in row:
            mean_slopes[at] += weight * slope
            right[at] -= weight * slope * line.offset
            for other, second in row:
                curvature[at][other] += weight * slope * second
    for at, slope in mean_slopes.items():
        right[at] += slope * mean_error / total
        for other, second in mean_slopes.items():
            curvature[at][other] -= slope * second / total


def _common_factor(errors: Sequence[float], pull: float) -> float:
    """Return the logarithm of the factor that minimizes the squares of ``errors`` plus its own.

    ``pull`` is the weight of the square of the factor.
    """
    return -sum(errors) / (len(errors) + pull * NOISE**2)


def kept_rows(cases: Sequence[Case], seconds: Sequence[float]) -> set[str]:
    """Return the ids of the cases that are not outliers when they are predicted to take
    ``seconds``."""
    errors = {
        case.run.id: log(time / case.seconds) for case, time in zip(cases, seconds, strict=True)
    }
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for case in cases:
        groups[_model_and_cluster(case)].append(errors[case.run.id])
    usual = {name: median(group) for name, group in groups.items()}
    return {
        case.run.id
        for case in cases
        if abs(errors[case.run.id]) < log(OUTLIER)
        and (
            case.run.gpus <= case.problem.cluster.node.gpus
            or abs(errors[case.run.id] - usual[_model_and_cluster(case)]) < log(SITE_OUTLIER)
        )
    }


def _model_and_cluster(case: Case) -> tuple[str, str]:
    return (case.width, case.run.cluster)


def predict_left_out(found: JointFit) -> dict[str, float]:
    """Return predicted over measured time of every row by a fit without any row of its source."""
    ratios: dict[str, float] = {}
    for out, logs in _fits_without(found, lambda case: source_of(case.run.source)):
        for hardware, rows in cases_by_class(line.case for line in out).items():
            seconds = predict(rows, class_values(hardware, found.structure, logs))
            ratios.update(
                {case.run.id: time / case.seconds for case, time in zip(rows, seconds, strict=True)}
            )
    return ratios


def left_out_errors(found: JointFit) -> dict[str, float]:
    """Return log(predicted / measured) of every row by a fit without the row's fold.

    A fold is a source. In a class with fewer than ``FOLDS`` sources it is a model of a source,
    because otherwise no row of the class would be left. The predictions are linear approximations.
    """
    sources: dict[str, set[str]] = defaultdict(set)
    for line in found.lines:
        sources[line.case.generation].add(source_of(line.case.run.source))

    def fold(case: Case) -> str:
        several = len(sources[case.generation]) >= FOLDS
        return source_of(case.run.source) + ("" if several else f" {case.generation} {case.width}")

    errors: dict[str, float] = {}
    for out, logs in _fits_without(found, fold):
        for line in out:
            hardware = line.case.generation
            values = (logs[key_of(hardware, name, found.structure)] for name in PRIORS)
            moves = zip(line.slopes, values, strict=True)
            errors[line.case.run.id] = line.offset + sum(slope * value for slope, value in moves)
    return errors


def _fits_without(
    found: JointFit, fold: Callable[[Case], str]
) -> Iterator[tuple[list[Line], Logs]]:
    """Yield the lines of every fold with the fit to all other lines."""
    folds: dict[str, list[Line]] = defaultdict(list)
    for line in found.lines:
        folds[fold(line.case)].append(line)
    for name, out in sorted(folds.items()):
        yield out, solve([line for line in found.lines if fold(line.case) != name], found)
