"""Shoal inside a scikit-learn pipeline, scored by scikit-learn: `python examples/pipeline.py`."""

from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from shoal import ShoalClassifier

X, y = load_breast_cancer(return_X_y=True)

# Any transformer can come first. Shoal scales and encodes columns itself, so a scaler is only needed for PCA.
pipeline = make_pipeline(StandardScaler(), PCA(n_components=10), ShoalClassifier(recipes=12, seeds=1, random_state=0))

# An outer cross-validation is the strictest check of an honest score: each outer fold was never seen by the search.
outer = cross_val_score(pipeline, X, y, cv=3)
pipeline.fit(X, y)
honest = pipeline[-1].honest_score_
print(f"three outer folds: {outer.mean():.3f}")
print(f"honest score:      {honest}")
