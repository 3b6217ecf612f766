"""The files in the run folder of a fine-tuning (see `shoal.runs.folder`): settings first, the model last."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from shoal.files.plain_files import read_text
from shoal.finetune.checkpoints import write_json, writing_run
from shoal.runs.kinds import FINETUNE_FORMAT, METRICS, MODEL, REPORT, SAMPLES, SETTINGS, SETTINGS_VERSION, read_json

WRITTEN = ("expected", "before", "after")  # texts of a sample, beside the prompt and those written meanwhile


def stem(file: str, model: str) -> str:
    """
    >>> stem("problems.csv.gz", "org/some model")
    'problems-some-model'
    """
    name = Path(model).name
    return f"{file.split('.')[0]}-{re.sub(r'[^A-Za-z0-9._-]+', '-', name).strip('.-') or 'model'}"


def read_settings(path: Path) -> dict[str, Any] | None:
    """The settings file of a run; None if this is not the folder of one."""
    content = read_json(path / SETTINGS)
    known = (
        content.get("format") == FINETUNE_FORMAT
        and content.get("version") == SETTINGS_VERSION
        and isinstance(content.get("fingerprint"), dict)
    )
    return content if known else None


def add_facts(run: Path, facts: dict[str, dict[str, Any]]) -> None:
    """Add what the workers found to the settings file."""
    content = read_settings(run)
    if content is not None:
        for part, values in facts.items():
            content[part] |= values
        write_json(run / SETTINGS, content)


def read_log(run: Path) -> list[dict[str, Any]]:
    """The records in the log of a run; an incomplete last line is ignored."""
    found = []
    path = run / METRICS
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


def read_samples(run: Path) -> list[dict[str, Any]]:
    """Prompts, and what the model has written for each so far; empty where the file is not there, or damaged."""
    try:
        found = json.loads(read_text(run / SAMPLES))
        texts = [text for one in found for text in (one["prompt"], *(one.get(name, "") for name in WRITTEN))]
        during = [(text["step"], text["text"]) for one in found for text in one.get("meanwhile", [])]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return []
    right = all(isinstance(text, str) for text in texts + [text for _, text in during])
    return list(found) if right and all(isinstance(step, int) for step, _ in during) else []


def evaluation_losses(log: list[dict[str, Any]]) -> dict[str, Any]:
    """The losses on the test texts before and after training, and the lowest; empty if none was measured."""
    tested = [(record["eval_loss"], record["step"]) for record in log if record.get("eval_loss") is not None]
    if not tested:
        return {}
    lowest, step = min(tested)
    before = tested[0][0] if tested[0][1] == 0 else None
    return {"loss_before": before, "loss_after": tested[-1][0], "loss_lowest": lowest, "step_lowest": step}


def write_report(run: Path, running: bool = False) -> None:
    """Write the report from the files in the folder."""
    from shoal.report import write_finetune_page  # 40 ms, which `shoal --help` need not wait for

    content = read_settings(run)
    assert content is not None
    log = read_log(run)
    about = content["run"] | {
        "steps": max((record["step"] for record in log), default=0),
        "seconds": max((record.get("seconds") or 0.0 for record in log), default=None),
        "interrupted": not running and not (run / MODEL).is_dir(),
    }
    data = {
        "title": content["data"]["file"], "created": content["created"], "version": content["shoal"], "run": about,
        "data": content["data"], "log": log, "samples": read_samples(run),
    }  # fmt: skip
    with writing_run(run):
        write_finetune_page(data, run / REPORT)
