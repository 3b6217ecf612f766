"""Which columns are worth having, and a forest of networks on them: `python examples/features_and_forests.py`."""

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.pipeline import make_pipeline

from shoal import FeatureSelector, ShoalForestRegressor

# Ten real columns, and ten of noise next to them.
X, y = load_diabetes(return_X_y=True)
noise = np.random.default_rng(0).normal(size=X.shape)
wide = np.hstack([X, noise])

# The selector keeps a column if the whole interval of its importance is above zero.
selector = FeatureSelector(epochs=20).fit(wide, y)
kept = selector.get_support()
print(f"kept {kept[:10].sum()} of 10 real columns and {kept[10:].sum()} of 10 columns of noise")

# A forest needs no rows held out: each network is scored on rows outside its bootstrap sample.
plain = ShoalForestRegressor(n_estimators=200, random_state=0).fit(wide, y)
selected = make_pipeline(selector, ShoalForestRegressor(n_estimators=200, random_state=0)).fit(wide, y)
print(f"out-of-bag R2, all columns:      {plain.oob_score_:.3f}")
print(f"out-of-bag R2, selected columns: {selected[-1].oob_score_:.3f}")
