"""Small symmetric positive-definite systems, by Cholesky factors (Golub & Van Loan, 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

Matrix = Sequence[Sequence[float]]


def cholesky(matrix: Matrix) -> list[list[float]]:
    """Lower factor L with L L' = ``matrix``; a pivot that is not positive is taken as tiny."""
    size = len(matrix)
    lower = [[0.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1):
            rest = matrix[i][j] - sum(lower[i][k] * lower[j][k] for k in range(j))
            lower[i][j] = sqrt(max(rest, 1e-18)) if i == j else rest / lower[j][j]
    return lower


def solve(matrix: Matrix, right: Sequence[float]) -> list[float]:
    """The x with ``matrix`` x = ``right``."""
    return _substitute(cholesky(matrix), right)


def cholesky_inverse(matrix: Matrix) -> list[list[float]]:
    """The inverse, column by column."""
    lower, size = cholesky(matrix), len(matrix)
    return [_substitute(lower, [float(i == j) for i in range(size)]) for j in range(size)]


def _substitute(lower: Matrix, right: Sequence[float]) -> list[float]:
    size = len(right)
    half = [0.0] * size
    for i in range(size):
        half[i] = (right[i] - sum(lower[i][k] * half[k] for k in range(i))) / lower[i][i]
    full = [0.0] * size
    for i in reversed(range(size)):
        below = sum(lower[k][i] * full[k] for k in range(i + 1, size))
        full[i] = (half[i] - below) / lower[i][i]
    return full
