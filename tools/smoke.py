"""Train a few networks with nothing but the installed package: no torch, no compiler."""

import sys

import numpy as np

import shoal

generator = np.random.default_rng(0)
X = generator.normal(size=(300, 4))
y = (X[:, 0] * X[:, 1] > 0).astype(int)
members = shoal.grid(hidden=[(), 16, (16, 16)], activation=["relu", "tanh"], learning_rate=0.01, repeats=2)
population = shoal.Population(members, n_features=4, n_outputs=2)
population.fit(X, y, epochs=60)
accuracy = population.evaluate(X, y).score
print(population)
print("best:", members[int(np.argmax(accuracy))], f"{accuracy.max():.1%}")
if accuracy.max() < 0.9 or accuracy[0] > 0.75:
    sys.exit(f"networks should learn this product and linear models should not: {accuracy}")
if "torch" in sys.modules:
    sys.exit("torch was imported")
