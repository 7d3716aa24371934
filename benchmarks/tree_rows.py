"""Boosted trees for ``benchmarks/baselines.py``: rows on stdin, predictions on stdout.

    python benchmarks/tree_rows.py < rows.json

Runs under a Python that has scikit-learn, and imports nothing of this project. The trees (300 of
depth 4, learning rate 0.05, every split on 80 % of the rows) are fitted to the rows of ``train``.
"""

from __future__ import annotations

import json
import sys


def predict_with_trees(
    train: list[list[float]], target: list[float], test: list[list[float]]
) -> list:
    """Return the predictions for ``test``."""
    from sklearn.ensemble import GradientBoostingRegressor

    model = GradientBoostingRegressor(
        n_estimators=300, max_depth=4, learning_rate=0.05, subsample=0.8, random_state=0
    )
    return list(model.fit(train, target).predict(test))


if __name__ == "__main__":
    data = json.load(sys.stdin)
    json.dump(predict_with_trees(data["train"], data["target"], data["test"]), sys.stdout)
