"""A web service for a saved model: MODEL=shoal-runs/data-1 uvicorn serve:app --app-dir examples

Rows come as JSON, a list of objects with a field for each column, null where a value is missing:
curl localhost:8000/predict -H 'content-type: application/json' -d '[{"size": 1.5, "colour": "red"}]'
"""

import os

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

import shoal

LARGEST_BODY = 10_000_000  # bytes

app, model = FastAPI(), shoal.load(os.environ["MODEL"])
columns = [column.name for column in model.schema_.columns]


@app.post("/predict")
def predict(rows: list[dict[str, str | float | bool | None]]) -> dict[str, list]:
    if not rows:
        raise HTTPException(422, "give at least one row")
    for number, row in enumerate(rows, 1):
        missing = [name for name in columns if name not in row]
        if missing:
            raise HTTPException(422, f"row {number} has no {', '.join(map(repr, missing))}; give null for no value")
    try:
        return {"predictions": model.predict(rows).tolist()}
    except ValueError as error:  # a word for a number, an infinite one: said in words
        raise HTTPException(422, str(error)) from None


@app.middleware("http")
async def refuse_large_bodies(request: Request, answer):
    """The server reads no more than what the header says."""
    size = request.headers.get("content-length", "")
    if request.method == "POST" and not size.isdecimal():
        return JSONResponse({"detail": "say how long the body is, in the header Content-Length"}, 411)
    if int(size or 0) > LARGEST_BODY:
        return JSONResponse({"detail": f"at most {LARGEST_BODY:,} bytes; got {size}: send fewer rows at a time"}, 413)
    return await answer(request)


@app.exception_handler(RequestValidationError)
async def say_what_is_wrong(request: Request, error: RequestValidationError):
    """Without the values themselves: JSON has no NaN, and nobody needs a megabyte back."""
    found = [{"where": list(one["loc"]), "problem": one["msg"]} for one in error.errors()[:10]]
    return JSONResponse({"detail": found}, 422)
