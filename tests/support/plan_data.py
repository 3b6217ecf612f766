"""A plan that never ran, for the tests of its page. Times follow a small cost model, so that they fit each other."""

from __future__ import annotations

import math
from typing import Any

ROWS, BATCH, EPOCHS, PARAMETERS = 50_000, 128, 10, 1_863_690
FIXED, PER_ROW = 0.0004, 31e-6
BANDWIDTH, LATENCY = 1.25e9, 5e-5
WEIGHTS = 4 * PARAMETERS
LABELS = {
    "serial": "one process",
    "allreduce": "all-reduce",
    "local_sgd": "local SGD",
    "parameter_server": "parameter server",
    "sharded": "sharded",
    "pipeline": "pipeline",
    "tensor": "tensor",
    "asynchronous": "server, asynchronous",
    "data+pipeline": "data and pipeline",
    "data+tensor": "data and tensor",
    "compressed": "all-reduce, 8 bits",
    "kfold": "folds over nodes",
}
# How many times the weights go over the link of a node in a step, and how many rounds of messages that takes.
TRAFFIC = {
    "serial": (0.0, 0),
    "allreduce": (2.0, 2),
    "local_sgd": (0.006, 0.01),
    "parameter_server": (2.6, 2),
    "sharded": (3.0, 6),
    "pipeline": (0.035, 8),
    "tensor": (0.3, 12),
    "asynchronous": (2.2, 1),
    "data+pipeline": (1.1, 8),
    "data+tensor": (1.3, 12),
    "compressed": (0.5, 2),
    "kfold": (0.001, 0.1),
}


def step_seconds(strategy: str, nodes: int) -> tuple[float, float]:
    """Seconds that a node computes in a step, and seconds that it waits for the link."""
    compute = FIXED + PER_ROW * BATCH / nodes
    amount, rounds = TRAFFIC[strategy]
    share = (nodes - 1) / nodes
    return compute, amount * share * WEIGHTS / BANDWIDTH + rounds * LATENCY * math.log2(max(nodes, 1))


def one_row(strategy: str, nodes: int) -> dict[str, Any]:
    compute, wait = step_seconds(strategy, nodes)
    steps = math.ceil(ROWS / BATCH)
    seconds = EPOCHS * steps * (compute + wait)
    alone = EPOCHS * steps * step_seconds("serial", 1)[0]
    loss = {"local_sgd": 0.0016, "asynchronous": 0.0031, "kfold": 0.001}.get(strategy, 0.0)
    accuracy = 0.9812 - loss * math.log2(nodes)
    spread = 0.0009 + 0.4 * loss * math.log2(nodes) ** 0.5
    split = strategy in ("sharded", "pipeline", "tensor")
    goal = 0.975
    return {
        "strategy": strategy,
        "label": LABELS[strategy],
        "nodes": nodes,
        "seconds_per_epoch": seconds / EPOCHS,
        "seconds": seconds,
        "speedup": alone / seconds,
        "improvement_percent": 100 * (1 - seconds / alone),
        "efficiency": alone / seconds / nodes,
        "communication_share": wait / (compute + wait),
        "bytes_per_node": EPOCHS * steps * TRAFFIC[strategy][0] * (nodes - 1) / nodes * WEIGHTS,
        "memory_bytes": 90e6 + 3 * WEIGHTS / (nodes if split else 1),
        "accuracy": accuracy,
        "accuracy_low": accuracy - spread,
        "accuracy_high": accuracy + spread,
        "seconds_to_goal": seconds * 0.42 * (1 + 60 * loss * math.log2(nodes)) if accuracy > goal else None,
        "cost": None,
        "start_seconds": 0.0,
        "note": "Weights of one layer do not fill a node." if strategy == "tensor" and nodes > 8 else "",
    }


def curve(strategy: str, nodes: int) -> dict[str, Any]:
    row = one_row(strategy, nodes)
    per_epoch, end = row["seconds_per_epoch"], row["accuracy"]
    accuracy = [end - 0.058 * math.exp(-epoch / 2.2) for epoch in range(1, EPOCHS + 1)]
    seconds = [per_epoch * epoch for epoch in range(1, EPOCHS + 1)]
    return {
        "strategy": strategy,
        "label": row["label"],
        "nodes": nodes,
        "seconds": seconds,
        "accuracy": [*accuracy[:-1], end],
    }


def timeline(nodes: int = 4) -> dict[str, Any]:
    """A step of all-reduce: gradients are sent in two parts, the first while the node still computes."""
    spans = []
    for node in range(nodes):
        late = 0.0002 * node
        parts = [
            ("compute", "forward", late, 0.0005),
            ("compute", "backward", late + 0.0005, 0.0009),
            ("link", "gradients of layer 3", 0.0011 + 0.0002 * (nodes - 1), 0.0006),
            ("link", "gradients of layers 1 and 2", 0.0017 + 0.0002 * (nodes - 1), 0.0084),
            ("compute", "update", 0.0101 + 0.0002 * (nodes - 1), 0.0004),
        ]
        for lane, name, start, seconds in parts:
            spans.append({"node": node, "lane": lane, "name": name, "start": start, "seconds": seconds})
    end = max(span["start"] + span["seconds"] for span in spans)
    return {"label": "all-reduce", "strategy": "allreduce", "nodes": nodes, "seconds": end, "spans": spans}


def machine() -> dict[str, Any]:
    sizes = [1, 4, 16, 32, 64, 128, 256, 512]
    wobble = [1.03, 0.98, 1.01, 1.02, 0.97, 1.0, 1.01, 0.99]
    return {
        "cpu": "AMD EPYC 7763",
        "cores": 2,
        "instruction_set": "avx2",
        "versions": {"shoal": "0.1.0", "torch": "2.8.0", "numpy": "2.1.3"},
        "backend": "processes",
        "link": {"name": "10gbit,0.05ms", "bandwidth": BANDWIDTH, "latency": LATENCY},
        "own_machines": True,
        "start_seconds": None,
        "compute": {
            "fixed_seconds": FIXED,
            "seconds_per_row": PER_ROW,
            "spread": 0.04,
            "points": [[rows, (FIXED + PER_ROW * rows) * off] for rows, off in zip(sizes, wobble, strict=True)],
        },
        "check": {"text": "Predicted 1.71 s an epoch, measured 1.66 s: 3% off.", "error": 0.03},
    }


PAYS = {
    "pays": True,
    "strategy": "local_sgd",
    "nodes": 4,
    "text": "Local SGD on 4 nodes trains in 5.6 s instead of 17 s and costs 0.3 points of accuracy. "
    "All-reduce, which costs none, would pay from 32 Gbit/s, or from batch 400.",
    "break_even": {"bandwidth": 4e9, "batch_size": 400, "nodes": 2},
}
PAYS_NOT = {
    "pays": False,
    "strategy": "serial",
    "nodes": 1,
    "text": "One node is best. Two would pay from 32 Gbit/s, or from batch 400.",
    "break_even": {"bandwidth": 4e9, "batch_size": 400},
}


def plan_data(
    pays: bool = True, strategies: int = 7, nodes: tuple[int, ...] = (1, 2, 4, 8, 16), metric: str = "accuracy"
) -> dict[str, Any]:
    """A plan with so many strategies; `pays=False` is without those that are faster than one node."""
    names = [name for name in LABELS if pays or name not in ("local_sgd", "pipeline", "tensor", "kfold")][:strategies]
    rows = [one_row(name, n) for name in names for n in nodes if (n == 1) == (name == "serial")]
    verdict = dict(PAYS if pays else PAYS_NOT)
    if (verdict["strategy"], verdict["nodes"]) not in {(row["strategy"], row["nodes"]) for row in rows}:
        verdict |= {"strategy": "serial", "nodes": 1}
    runs = [("serial", 1), ("allreduce", 4), ("local_sgd", 4), ("local_sgd", 8), ("pipeline", 4)]
    return {
        "what": "mlp:784-1024-1024-10 on mnist",
        "command": "shoal plan mlp:784-1024-1024-10 --data mnist --nodes 1-16 --link 10gbit,0.05ms --goal 0.975",
        "created": "2026-11-16 07:00",
        "version": "0.1.0",
        "machine": machine(),
        "settings": {
            "epochs": EPOCHS,
            "batch_size": BATCH,
            "rows": ROWS,
            "parameters": PARAMETERS,
            "seeds": 3,
            "learning_rate": 0.05,
            "average_every": "epoch",
            "nodes": list(nodes),
        },
        "rows": rows,
        "verdict": verdict,
        "goal": {"metric": metric, "value": 0.975},
        "metric": metric,
        "curves": [curve(name, n) for name, n in runs if name in names and n in nodes],
        "timeline": timeline(),
        "unstable": False,
        "interrupted": False,
        "noise": {
            "critical_batch": 850.0,
            "low": 610.0,
            "high": 1240.0,
            "text": "The gradients of single rows differ much: batches may grow to about 850 rows.",
        },
        "notes": [
            "Times of several nodes are computed, not measured.",
            "Local SGD was trained in one process, as if on several nodes.",
        ],
    }
