"""Data of searches that never ran, for the tests of the report."""

from __future__ import annotations

import math
import random
from typing import Any

ACTIVATIONS = ["identity", "sigmoid", "tanh", "relu", "elu", "selu", "gelu", "leaky_relu", "hardshrink", "mish"]
TEXTS = {"hidden", "activation", "stopped"}
NUMBERS_FIRST = ["rank", "recipe", "score", "fold_spread", "seed_spread", "loss"]
SETTINGS = ["hidden", "width", "activation", "learning_rate", "weight_decay", "dropout", "batch_size"]
COSTS = ["epochs", "stopped", "parameters", "seconds", "seeds"]
KEYS = [*NUMBERS_FIRST, *SETTINGS, *COSTS]


def recipe_row(recipe: int, dice: random.Random) -> dict[str, Any]:
    layers = [dice.choice([8, 16, 32, 64, 128]) for _ in range(dice.choice([0, 1, 1, 1, 2, 2, 3]))]
    activation = dice.choice(ACTIVATIONS) if layers else "linear"
    width = sum(layers)
    score = 0.70 + 0.012 * math.log2(1 + width) - 0.0012 * math.log2(1 + width) ** 2 + dice.gauss(0, 0.012)
    score += 0.008 * (activation in {"relu", "gelu", "mish"}) - (0.2 if dice.random() < 0.03 else 0)
    seeds = dice.choice([1, 2, 3])
    return {
        "recipe": recipe,
        "score": score,
        "fold_spread": dice.uniform(0.01, 0.04),
        "seed_spread": dice.uniform(0.001, 0.01) if seeds > 1 else None,
        "loss": 1.2 - score,
        "hidden": "x".join(map(str, layers)) or "linear",
        "width": width,
        "activation": activation,
        "learning_rate": 10 ** dice.uniform(-5, -1),
        "weight_decay": 10 ** dice.uniform(-6, -2),
        "dropout": dice.choice([0.0, 0.1, 0.25]),
        "batch_size": dice.choice([16, 32, 64]),
        "epochs": dice.randint(3, 60),
        "stopped": dice.choice(["yes", ""]),
        "parameters": 21 * (width + 1),
        "seconds": dice.uniform(0.01, 2),
        "seeds": seeds,
    }


def leaderboard(rows: int, dice: random.Random) -> dict[str, Any]:
    made = sorted((recipe_row(recipe, dice) for recipe in range(rows)), key=lambda row: -row["score"])
    columns = [
        {"key": key, "label": key.replace("_", " "), "kind": "text" if key in TEXTS else "number"} for key in KEYS
    ]
    return {"columns": columns, "rows": [[rank, *row.values()] for rank, row in enumerate(made, start=1)]}


def column(data: dict[str, Any], key: str) -> list[Any]:
    place = [one["key"] for one in data["leaderboard"]["columns"]].index(key)
    return [row[place] for row in data["leaderboard"]["rows"]]


def curve(label: str, recipe: int, epochs: int, floor: float) -> dict[str, Any]:
    numbers = list(range(1, epochs + 1))
    train = [floor - 0.08 + 0.5 * math.exp(-n / 8) - 0.0008 * n for n in numbers]
    valid = [floor + 0.45 * math.exp(-n / 7) + 0.00002 * n**2 for n in numbers]
    return {"label": label, "recipe": recipe, "epochs": numbers, "train": train, "valid": valid}


def table_data(classification: bool) -> dict[str, Any]:
    kinds = {
        "status": "category",
        "duration": "number",
        "credit_history": "category",
        "amount": "number",
        "job": "text",
    }
    table = [{"name": name, "kind": kind, "missing": 0.0, "note": ""} for name, kind in kinds.items()]
    table[1]["missing"], table[3]["note"] = 0.013, "skewed; ranks used"
    notes = ["Separator: comma; first line taken as header.", "Two columns look like categories in disguise."]
    classes = ["good", "bad"] if classification else None
    target = "class" if classification else "price"
    return {"rows": 1000, "columns": 20, "target": target, "classes": classes, "notes": notes, "table": table}


def search_settings(rows: int) -> dict[str, Any]:
    phases = {"reading and encoding": 0.4, "training": 55.1, "honest score and ensemble": 1.9, "saving": 0.8}
    space = {"hidden": "linear, or 1 to 3 layers of 8 to 128", "activation": ", ".join(ACTIVATIONS)}
    space |= {"learning_rate": "0.00001 to 0.1, log-uniform", "dropout": "0, 0.1, 0.25", "batch_size": "16, 32, 64"}
    counts = {"strategy": "halving", "recipes": rows, "networks": rows * 8, "folds": 8, "cv": "stratified 8-fold"}
    costs = {"epochs": 98760, "seconds": 58.2, "memory": 261_000_000, "budget": 60, "seed": 0, "threads": 2}
    listed = [{"name": name, "seconds": seconds} for name, seconds in phases.items()]
    return {**counts, **costs, "processor": "AMD EPYC", "phases": listed, "space": space, "interrupted": False}


def ensemble(board: dict[str, Any]) -> dict[str, Any]:
    parts = []
    for row, weight in zip(board["rows"], [0.25, 0.2, 0.15, 0.15, 0.1, 0.1, 0.05], strict=False):
        label = f"Member(hidden=({row[7]},), activation='{row[8]}', learning_rate={row[9]:.3g})"
        parts.append({"recipe": row[1], "label": label, "weight": weight})
    size = {"used": True, "recipes": len(parts), "networks": 8 * len(parts), "parameters": 123456}
    gain = {"best_single": 0.761, "score": 0.77, "gain": 0.009, "milliseconds_per_1000_rows": 12.0}
    return {**size, **gain, "parts": parts}


def calibration(dice: random.Random) -> dict[str, Any]:
    middles = [(place + 0.5) / 10 for place in range(10)]
    bins = [
        {"predicted": p, "observed": min(1, max(0, p + dice.gauss(0, 0.03))), "count": int(600 * p)} for p in middles
    ]
    return {"bins": bins, "error": 0.021, "temperature": 1.12}


def search_data(task: str = "classification", rows: int = 300, seed: int = 0) -> dict[str, Any]:
    """A full set of data for one task; tests take parts away or make them nasty."""
    dice = random.Random(seed)
    board = leaderboard(rows, dice)
    classification = task == "classification"
    middle = board["rows"][rows // 2][1]
    true = [dice.gauss(200, 60) for _ in range(600)]
    near = [value + dice.gauss(0, 25) for value in true]
    score = {"raw": 0.77, "corrected": 0.752, "low": 0.73, "high": 0.778, "confidence": 0.95}
    score |= {"metric": "accuracy" if classification else "r2", "chance": 0.7 if classification else 0.0}
    return {
        **{"title": "german.csv", "created": "2026-11-16 00:30", "version": "0.1.0", "task": task},
        "data": table_data(classification),
        "search": search_settings(rows),
        "score": {**score, "others": {"log-loss": 0.4931, "roc_auc": 0.7842}},
        "ensemble": ensemble(board),
        "leaderboard": board,
        "curves": [curve("best", board["rows"][0][1], 60, 0.48), curve("median", middle, 24, 0.55)],
        "luck": {"architecture": 0.58, "seeds": 0.11, "folds": 0.31},
        "confusion": {"classes": ["good", "bad"], "counts": [[612, 88], [160, 140]]} if classification else None,
        "residuals": {"true": true, "predicted": near} if task == "regression" else None,
        "calibration": None if task == "regression" else calibration(dice),
    }
