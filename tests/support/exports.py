"""What tests of exported models share: does a file, or a module, predict what Shoal predicts?"""

import numpy as np
import pytest

from shoal.models.export.comparison import compare, made_up_rows, runtime_inputs
from shoal.models.export.plan import make_plan
from shoal.models.export.registry import EXPORTERS
from shoal.models.export.writing import export_model
from shoal.tables.table import Table

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")

from shoal.models.export import torch as export_torch  # noqa: E402  (it needs the package)

CLOSE = 5e-6  # of a probability, or of the spread of the target: rounding of float32
QUICK = {"recipes": 6, "epochs": 6, "seeds": 1, "cv": 3, "n_jobs": 1}


def run_onnx(path, **inputs):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return dict(zip([entry.name for entry in session.get_outputs()], session.run(None, inputs), strict=True))


def agrees(estimator, to, path, X):
    """Export, with the check on rows of the table; then the check on made-up rows, which reach further."""
    given = export_model(estimator, to, path, X)
    model = estimator.model_
    made_up = compare(model, make_plan(model), EXPORTERS[to], path, made_up_rows(model, make_plan(model)), True)
    assert (given.rows, given.made_up, made_up.rows, made_up.made_up) == (len(X), False, 1000, True)
    assert given.relative < CLOSE
    assert made_up.relative < CLOSE
    assert given.beyond == made_up.beyond == 0


def module_agrees(model, X):
    """The PyTorch module itself, without the seconds that writing and reading a file take."""
    plan = make_plan(model)
    for table in (Table.of(X), made_up_rows(model, plan)):
        with torch.no_grad():
            inputs = runtime_inputs(model, plan, table)
            given = [torch.from_numpy(inputs["numbers"])]
            if "categories" in inputs:
                metadata = {
                    "category_codes": {
                        category.name: category.numbered(category.known) for category in plan.categories
                    },
                    "unseen_codes": {category.name: len(category.known) for category in plan.categories},
                }
                given.append(torch.from_numpy(export_torch.codes_of(inputs["categories"], metadata)))
            got = export_torch.ExportedModel(plan)(*given).numpy()
        expected = model.predict(table)
        spread = plan.target["scale"].max(axis=0)
        assert (np.abs(got - expected) / spread).max() < CLOSE
        assert (expected.std(axis=0) > 0.01 * spread).all(), "a constant prediction would agree with anything"
