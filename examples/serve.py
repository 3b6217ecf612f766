"""A web service for a saved model: MODEL=shoal-runs/data-1 uvicorn serve:app --app-dir examples

Rows come as JSON, a list of objects with a field for each column:
curl localhost:8000/predict -H 'content-type: application/json' -d '[{"size": 1.5, "colour": "red"}]'
"""

import os

from fastapi import FastAPI, HTTPException

import shoal

app, model = FastAPI(), shoal.load(os.environ["MODEL"])


@app.post("/predict")
def predict(rows: list[dict[str, str | float | bool | None]]) -> dict[str, list]:
    if not rows:
        raise HTTPException(422, "give at least one row")
    try:
        return {"predictions": model.predict(rows).tolist()}
    except ValueError as error:  # a column that is not there, a word for a number: said in words
        raise HTTPException(422, str(error)) from None
