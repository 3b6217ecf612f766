"""From a table to a model with an honest score, intervals and reasons: `python examples/table.py`."""

from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

import shoal

# 442 patients: ten measurements, and how far the disease progressed after a year.
X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X_known, X_new, y_known, y_new = train_test_split(X, y, test_size=0.2, random_state=0)

# Ten seconds of search. `sex` is coded as 1 and 2, so Shoal is told that it is a category.
model = shoal.ShoalRegressor(budget=10, kinds={"sex": "category"}, random_state=0)
model.fit(X_known, y_known)

print("expected on new patients:", model.honest_score_)
print("measured on new patients:", round(model.score(X_new, y_new), 3))
print(model.importance_)

# A range for each new patient. About 90% of the true values lie inside.
low, high = model.predict_interval(X_new, coverage=0.9).T
print(f"covered: {((low <= y_new) & (y_new <= high)).mean():.0%}")

# What raised or lowered the prediction for the first patient?
why = model.explain(X_new[:1])
for column, value in sorted(zip(why.columns, why.values[0], strict=True), key=lambda pair: -abs(pair[1]))[:3]:
    print(f"{column}: {value:+.1f}")

shoal.save(model, "diabetes-model")
print("saved in diabetes-model; `shoal predict diabetes-model FILE` uses it")
