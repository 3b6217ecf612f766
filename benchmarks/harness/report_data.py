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
    parts: dict[str, Any] = {"trained_on": {}, "effort": {}, "skipped": []}
    return {**counts, **costs, **parts, "processor": "AMD EPYC", "phases": listed, "space": space, "interrupted": False}


def ensemble(board: dict[str, Any]) -> dict[str, Any]:
    parts: list[Any] = []
    for row, weight in zip(board["rows"], [0.25, 0.2, 0.15, 0.15, 0.1, 0.1, 0.05], strict=False):
        label = f"Member(hidden=({row[7]},), activation='{row[8]}', learning_rate={row[9]:.3g})"
        parts.append({"recipe": row[1], "label": label, "weight": weight})
    size = {"used": True, "recipes": len(parts), "networks": 8 * len(parts), "parameters": 123456}
    gain = {"best_single": 0.761, "score": 0.77, "gain": 0.009, "milliseconds_per_1000_rows": 12.0}
    return {**size, **gain, "parts": parts}


def explanation(classification: bool) -> dict[str, Any]:
    """Which columns matter: as many as the table has, two of them alike; effects of each kind of column; one pair."""
    names = ["status", "duration", "credit_history", "amount", *[f"column {place}" for place in range(5, 21)]]
    metric = "accuracy" if classification else "r2"
    columns = [
        {"columns": [name], "importance": 0.05 * 0.7**k, "low": 0.05 * 0.7**k - 0.006, "high": 0.05 * 0.7**k + 0.006}
        for k, name in enumerate(names)
    ]
    group = {"columns": ["amount", "duration"], "importance": 0.08, "low": 0.06, "high": 0.1}
    importance: dict[str, Any] = {
        "metric": metric,
        "confidence": 0.95,
        "columns": columns,
        "groups": [group],
        "rounds": 7,
    }
    output = "bad" if classification else None
    numbers = [4.0 * place for place in range(1, 13)]
    rise = [0.2 + 0.03 * place for place in range(12)]
    duration: dict[str, Any] = {
        "column": "duration",
        "kind": "number",
        "output": output,
        "values": numbers,
        "mean": rise,
    }
    duration |= {"low": [y - 0.02 for y in rise], "high": [y + 0.04 for y in rise], "rug": [4.0, 9.0, 12.0, 30.0, 48.0]}
    status: dict[str, Any] = {
        "column": "status",
        "kind": "category",
        "output": output,
        "values": ["none", "A11", "A12"],
    }
    status |= {"mean": [0.2, 0.5, 0.3], "low": [0.1, 0.4, 0.3], "high": [0.2, 0.6, 0.4], "rug": [0.5, 0.3, 0.2]}
    days = [1.5e15 + 1e13 * place for place in range(4)]
    date: dict[str, Any] = {
        "column": "since",
        "kind": "date",
        "output": output,
        "values": days,
        "mean": rise[:4],
        "low": rise[:4],
    }
    date |= {"high": rise[1:5], "rug": days}
    surface = [[0.1 * a * b for b in range(7)] for a in range(3)]
    pair: dict[str, Any] = {"columns": ["status", "duration"], "strength": 0.42, "output": output, "mean": surface}
    pair |= {"values": [["none", "A11", "A12"], numbers[:7]]}
    importance |= {"rows": 1000, "left_out": []}
    for part in (duration, status, date, pair):
        part["share"] = classification
    return {"importance": importance, "effects": [status, duration, date], "pairs": [pair], "seconds": 2.0}


def calibration(dice: random.Random) -> dict[str, Any]:
    middles = [(place + 0.5) / 10 for place in range(10)]
    bins = [
        {"predicted": p, "observed": min(1, max(0, p + dice.gauss(0, 0.03))), "count": int(600 * p)} for p in middles
    ]
    return {"bins": bins, "error": 0.021, "temperature": 1.12}


def one_row(classification: bool) -> dict[str, Any]:
    parts: list[Any] = [
        {"label": "up to 12", "rows": 310, "size": 1.1},
        {"label": "above 12", "rows": 690, "size": 1.42},
    ]
    shared = {"coverage": 0.9, "rows": 1000, "refit": False, "columns": [{"name": "duration", "parts": parts}]}
    if not classification:
        return {**shared, "kind": "numbers", "widths": [60.0, 82.0, 131.0]}
    classes = [{"name": "good", "rows": 700, "size": 1.2}, {"name": "bad", "rows": 300, "size": 1.6}]
    return {**shared, "kind": "classes", "sizes": [0.68, 0.32], "classes": classes}


def search_data(task: str = "classification", rows: int = 300, seed: int = 0) -> dict[str, Any]:
    """A full set of data for one task; tests take parts away or make them nasty."""
    dice = random.Random(seed)
    board = leaderboard(rows, dice)
    classification = task == "classification"
    middle = board["rows"][rows // 2][1]
    true = [dice.gauss(200, 60) for _ in range(600)]
    near = [value + dice.gauss(0, 25) for value in true]
    score: dict[str, Any] = {"raw": 0.77, "corrected": 0.752, "low": 0.73, "high": 0.778, "confidence": 0.95}
    score |= {"averaging": 0.0, "problem": ""}
    score |= {"metric": "accuracy" if classification else "r2", "chance": 0.7 if classification else 0.0}
    return {
        **{"title": "german.csv", "created": "2026-11-16 00:30", "version": "0.1.0", "task": task},
        "data": table_data(classification),
        "search": search_settings(rows),
        "score": {**score, "others": {"log-loss": 0.4931, "roc_auc": 0.7842}},
        "explanation": explanation(classification),
        "one_row": one_row(classification) if task != "multilabel" else None,
        "ensemble": ensemble(board),
        "leaderboard": board,
        "curves": [curve("best", board["rows"][0][1], 60, 0.48), curve("median", middle, 24, 0.55)],
        "luck": {"architecture": 0.58, "seeds": 0.11, "folds": 0.31},
        "confusion": {"classes": ["good", "bad"], "counts": [[612, 88], [160, 140]]} if classification else None,
        "residuals": {"true": true, "predicted": near} if task == "regression" else None,
        "calibration": None if task == "regression" else calibration(dice),
    }


# ---- fine-tuning runs

PROMPT = "statement:\nGiven a list of whole numbers, return the largest even one, or 0 if there is none.\n\nsolution:\n"
SOLUTION = """def largest_even(numbers):
    even = [number for number in numbers if number % 2 == 0]
    return max(even, default=0)
"""
WRITTEN = """def largest_even(numbers):
    best = 0
    for number in numbers:
        if number % 2 == 0 and number > best:
            best = number
    return best
"""


def train_record(step: int, steps: int, epochs: float, dice: random.Random) -> dict[str, Any]:
    """Noisy and falling; the rate warms up over a tenth of the run and falls along a cosine."""
    share, warm = step / steps, max(1, steps // 10)
    decay = 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
    return {
        "step": step,
        "epoch": round(epochs * share, 4),
        "loss": 1.9 + 5 * math.exp(-6 * share) + dice.gauss(0, 0.16) - 0.5 * share,
        "learning_rate": 3e-4 * (step / warm if step < warm else decay),
        "grad_norm": 0.6 + 3 * math.exp(-9 * share) + abs(dice.gauss(0, 0.22)) + (6 if dice.random() < 0.01 else 0),
        "samples_per_second": 60 + dice.gauss(0, 2.5),
        "steps_per_second": 7.5 + dice.gauss(0, 0.3),
        "tokens_per_second": 9000 + dice.gauss(0, 400),
    }


def eval_record(step: int, steps: int, epochs: float, dice: random.Random) -> dict[str, Any]:
    share = step / steps
    return {
        "step": step,
        "epoch": round(epochs * share, 4),
        "eval_loss": 2.35 + 4.6 * math.exp(-5.5 * share) + 0.25 * max(0.0, share - 0.7) ** 2,
        "eval_runtime": 0.8 + abs(dice.gauss(0, 0.03)),
        "eval_samples_per_second": 30 + dice.gauss(0, 0.8),
        "eval_steps_per_second": 3.8 + dice.gauss(0, 0.1),
    }


def finetune_log(steps: int, every: int, dice: random.Random, epochs: float = 3) -> list[dict[str, Any]]:
    log = [eval_record(0, steps, epochs, dice)]
    for step in range(1, steps + 1):
        log.append(train_record(step, steps, epochs, dice))
        if step % every == 0:
            log.append(eval_record(step, steps, epochs, dice))
    return log


def finetune_data(steps: int = 120, every: int = 10, seed: int = 0) -> dict[str, Any]:
    """The full data of a fine-tuning run; tests take parts away or make them nasty."""
    log = finetune_log(steps, every, random.Random(seed))
    run = {"model": "gpt2", "parameters": 124439808, "trained": 124439808, "lora": None, "device": "cpu", "workers": 2}
    run |= {"threads": 1, "processor": "AMD EPYC", "epochs": 3, "batch_size": 8, "learning_rate": 3e-4, "seed": 0}
    run |= {"schedule": "cosine", "steps": steps, "steps_planned": steps, "context": 512, "seconds": 93.2}
    notes = ["2 rows are left out: all their cells are empty"]
    understood = {"file": "problems.csv", "rows": 240, "train": 216, "test": 24, "columns": ["statement", "solution"]}
    understood |= {"format": "statement:\n...\n\nsolution:\n...", "tokens": 34567, "cut": 3, "notes": notes}
    sample = {
        "prompt": PROMPT,
        "expected": SOLUTION,
        "before": "\u0120the the\x00 of\n\n\nand,,,, \ufffd",
        "after": WRITTEN,
    }
    return {
        **{"title": "problems.csv", "created": "2026-11-16 07:00", "version": "0.1.0"},
        "run": {**run, "interrupted": False, "resumed_at": []},
        "data": understood,
        "log": log,
        "samples": [
            sample,
            {**sample, "prompt": "statement:\nGr\u00fc\u00dfe \u4f60\u597d\n\nsolution:\n", "after": ""},
        ],
    }


def why_data(share: bool = True, rows: int = 3, columns: int = 13) -> dict[str, Any]:
    """Rows that are explained, all alike."""
    cells = [3.25, "red", None, "2024-05-01"]
    found = [
        {"column": f"column {k}", "value": cells[k % 4], "adds": (0.2 - 0.01 * k) * (-1) ** k, "error": 0.004 * (k % 3)}
        for k in range(columns)
    ]
    row = {"answer": "bad" if share else None, "prediction": 0.8, "mean": 0.3, "share": share, "columns": found}
    listed = [{**row, "number": k + 1} for k in range(rows)]
    return {"title": "new.csv", "created": "", "version": "0.1.0", "target": "class", "walks": 64, "rows": listed}
