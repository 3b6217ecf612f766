"""Shoal's patience with tasks and workers: every number that decides about retrying, skipping and excluding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RetryLimits:
    # a task that loses its workers
    max_lost_workers: int = 3  # in a row, before the task is skipped
    min_lost_while_alone: int = 2  # of these, so many must be lost while no other task could have ended them
    # a task that raises an exception
    max_errors: int = 2
    workers_to_confirm_error: int = 2  # if there are so many; until then the worker may be the cause
    workers_to_confirm_environment_error: int = 5  # a full disk or a missing library: several workers may have it
    # other ways to fail
    max_hangs: int = 3
    max_without_result: int = 20  # calls of one task that were refused, cancelled or answered by something else
    failures_that_show_a_faulty_worker: int = 2  # tasks that fail on it and that other workers complete
    failures_that_show_all_fail: int = 3  # tasks that fail before any task was completed
    max_restarts: int = 5  # of workers in a row, without a completed task in between
    max_avoided_seconds: float = 300.0  # in which a task only comes back from workers that must not do it
    # a task that takes too long
    patience_seconds: float = 10.0  # for any task, plus a multiple of the time that others took
    patience_factor_at_start: float = 6.0  # while workers may still be loading libraries
    slowest_task_factor: float = 4.0
    # the loop
    poll_seconds: float = 0.1  # between two calls of `stop`
    settling_seconds: float = 0.2  # in which the other tasks of a broken pool fail too
    absence_seconds: float = 10.0  # without any worker, before a note says so
    worth_cutting_seconds: float = 4.0  # a longer task is cut when workers would be idle otherwise
