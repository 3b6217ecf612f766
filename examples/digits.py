"""Which network reads handwritten digits best? Hundreds of them are trained at once, and the best is scored once.

An example of a population used directly: `python examples/digits.py`. For a search in one call see `shoal search`.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits

import shoal

# The data: 1,797 images of 8 x 8 pixels. A fifth is put aside for one final score; nothing else may look at it.
X, y = load_digits(return_X_y=True)
X = X / 16.0
order = np.random.default_rng(0).permutation(len(X))
test, rest = order[:360], order[360:]
X_test, y_test, X, y = X[test], y[test], X[rest], y[rest]

# The recipes: every combination, each with three seeds. All stop early on one hold-out and keep their best weights.
members = shoal.grid(
    hidden=[(), 16, 32, 64, (32, 32)],
    activation=list(shoal.ACTIVATIONS),
    learning_rate=[0.001, 0.003, 0.01],
    weight_decay=[0.0, 0.0001],
    patience=5,
    repeats=3,
)
population = shoal.Population(members, n_features=64, n_outputs=10)
print(f"{len(members)} networks on {len(X)} images of handwritten digits")
history = population.fit(X, y, epochs=30, rows=shoal.rows.holdout(len(X), 0.25), callbacks=[shoal.ProgressBar()])

# The leaderboard: recipes ranked by validation loss, averaged over their seeds, so that one lucky draw does not win.
valid_loss = population.state.best_loss.reshape(-1, 3)
ranking = np.argsort(valid_loss.mean(axis=1))
table = Table("", "recipe", "validation loss", "over seeds", title="The ten best recipes", title_justify="left")
for place, recipe in enumerate(ranking[:10], start=1):
    name = repr(members[3 * recipe].replace(patience=0))[len("Member(") : -1]
    spread = f"{valid_loss[recipe].min():.4f} to {valid_loss[recipe].max():.4f}"
    table.add_row(str(place), name, f"{valid_loss[recipe].mean():.4f}", spread)
Console().print(table)

# The honest score: test rows that took no part in training, stopping or choosing.
winner = 3 * ranking[0] + np.arange(3)
accuracy = population.evaluate(X_test, y_test, winner).score
counts = {name: population.status.count(name) for name in sorted(set(population.status))}
print(f"winner on {len(X_test)} unseen images: {accuracy.mean():.1%} correct", end=" ")
print(f"(seeds: {accuracy.min():.1%} to {accuracy.max():.1%})")
print(f"{history.seconds:.1f} s of training; " + ", ".join(f"{count} {name}" for name, count in counts.items()))

path = Path("shoal-demo") / "leaderboard.csv"
path.parent.mkdir(exist_ok=True)
with path.open("w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["validation_loss", "epochs", "status", *members[0].as_dict()])
    for i in np.argsort(population.state.best_loss):
        row = [
            population.state.best_loss[i],
            population.epochs[i],
            population.status[i],
            *members[i].as_dict().values(),
        ]
        writer.writerow(row)
print(f"all {len(members)} networks: {path}")
