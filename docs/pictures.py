"""Makes the pictures of the README: `python -m docs.pictures`. Needs chromium and matplotlib.

The report is that of a search over the diabetes patients of scikit-learn. The chart comes from
benchmarks/results/gridsearch.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from matplotlib import pyplot
from sklearn.datasets import load_diabetes

from docs.generated import has_earlier_kernel

CHECKOUT = Path(__file__).parent.parent
PICTURES = CHECKOUT / "docs" / "pictures"
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars")


def report_picture() -> None:
    """The top of a real report, down to the columns that clearly matter."""
    with tempfile.TemporaryDirectory() as folder:
        patients = load_diabetes(as_frame=True, scaled=False).frame.rename(columns={"target": "progression"})
        patients.to_csv(Path(folder) / "patients.csv", index=False)
        search = [sys.executable, "-m", "shoal", "search", "patients.csv", "--target", "progression"]
        search += ["--kind", "sex=category", "--recipes", "100", "--out", "patients"]
        subprocess.run(search, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        page = (Path(folder) / "patients" / "report.html").as_uri()
        shot = (f"--screenshot={PICTURES / 'report.png'}", "--window-size=1000,1292", "--force-device-scale-factor=1.5")
        browser = ["chromium", *QUIET, f"--user-data-dir={folder}/browser", *shot, page]
        subprocess.run(browser, check=True, stderr=subprocess.DEVNULL)


def chart() -> None:
    """Seconds for 1,000 networks, on a linear axis."""
    result = json.loads((CHECKOUT / "benchmarks" / "results" / "gridsearch.json").read_text(encoding="utf-8"))
    names = {"estimator": "ShoalClassifier", "gridsearchcv": "GridSearchCV(MLPClassifier)"}
    seconds = {names[key]: value["seconds"] for key, value in result["contenders"].items() if key in names}
    figure, axes = pyplot.subplots(figsize=(7.5, 1.7), layout="constrained")
    bars = axes.barh(list(seconds), list(seconds.values()), color=["#0b6e8a", "#b9c4c9"])
    axes.bar_label(bars, fmt="%.0f s", padding=4)
    axes.set_xlim(0, max(seconds.values()) * 1.12)
    earlier = ", with an earlier kernel" if has_earlier_kernel(result) else ""
    measured = f"2 cores, {result['machine']['date'][:10]}{earlier}"
    axes.set_xlabel(f"seconds for 100 recipes x 10 folds on digits, less is better\n({measured})")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(PICTURES / "gridsearch.png", dpi=200)


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    chart()
    report_picture()
