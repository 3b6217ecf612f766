"""How good the search is on a folder of tables: against what people use, given the same splits, seconds and cores."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.report import Result
from benchmarks.peers.tabular import data as tabular_data
from benchmarks.peers.tabular.contenders import ENTRANTS
from benchmarks.peers.tabular.environments import find_environments
from benchmarks.peers.tabular.report import Report, build_result
from benchmarks.peers.tabular.runs import CORES, Run, check_again
from shoal.datasets import find

MEANT_SECONDS = (30.0, 120.0)  # what the targets speak of


@benchmark(quick={"only": ("car", "autompg"), "seconds": 5.0, "splits": 1})
def tabular(
    *,
    tables: Path | None = None,
    seconds: float = 30.0,
    splits: int = 2,
    contenders: tuple[str, ...] = tuple(ENTRANTS),
    only: tuple[str, ...] = (),
    held_out: bool | None = None,
    again: tuple[str, ...] = (),
    out: Path,
) -> Result:
    """Real tables: Shoal against AutoGluon, CatBoost, LightGBM, RealMLP, TabM and others in the same seconds.

    Takes hours. Every fit is written down when it ends, in tabular.jsonl: a run that was stopped goes on from there.
    Peers need an environment of their own, which `make peers` builds.

    tables: Folder of NAME.csv.gz files whose last column is `target`, and perhaps index.json; none: SHOAL_DATA/tables.
    seconds: Seconds for each fit.
    splits: Splits of each table into 67% to train on and 33% to test on.
    contenders: Who takes part.
    only: Names of tables.
    held_out: Only the third of the tables that no choice may look at, or only the others.
    again: Contenders to measure again, or `failed` for what failed.
    """
    check_again(again)
    folder = tables or find("tables")
    names = tabular_data.names(folder, only, held_out)
    environments = find_environments(contenders)
    run = Run(environments, splits, out)
    datasets = [tabular_data.load(folder, name) for name in names]
    entries = run.measure("tabular", datasets, [seconds], again)
    report = Report([data.described() for data in datasets], list(environments.present), entries)
    whole = names == tabular_data.names(folder) and set(environments.present) == set(ENTRANTS)
    complete = whole and splits >= 2 and seconds in MEANT_SECONDS
    title = f"Real tables: {seconds:g} seconds a fit, {CORES} cores"
    result = build_result(title, report, complete, [*run.notes(entries), *explanations(splits)])
    result.data["packages"] = environments.packages()
    return result


def explanations(splits: int) -> list[str]:
    return [
        f"{splits} splits of each table, 67% of the rows to train on, stratified by class, the same for all. "
        "Contenders take turns within a split. Each fit is a process of its own and may use the same cores.",
        "Random searches start with the library's defaults, use 5 inner folds on all cores, select by loss, "
        "and fit again on all rows within the same time. Logistic and ridge regression have a grid of 22 values.",
        "RealMLP: tuned defaults, as many bagged folds, up to 8, as fit into the time. TabM: defaults, one split, "
        "ended when the time is up. Both choose epochs by cross-entropy, as the documentation of pytabkit advises.",
        "Loss: log-loss with probabilities clipped at 1e-7, or RMSE in standard deviations of the table's target. "
        "In ratios, losses below 0.001 count as 0.001.",
        "Ranks are those of means over splits. Intervals: 10,000 bootstrap samples of tables. "
        "A contender that fails or takes more than 3 times the seconds is ranked last on that table.",
        "Held out: tables whose name has a sha256 divisible by three. No choice may look at results on these.",
    ]
