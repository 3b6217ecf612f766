"""Experiment trackers that people already use, as callbacks: MLflow, TensorBoard, and a file of JSON lines."""

from __future__ import annotations

from shoal.trackers.jsonlines import JSONLines
from shoal.trackers.mlflow import MLflow
from shoal.trackers.tensorboard import TensorBoard

__all__ = ["JSONLines", "MLflow", "TensorBoard"]
