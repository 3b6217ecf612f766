"""The benchmark of shared batches: ratios, the worst of them, and the command."""

from __future__ import annotations

import pytest
from support.bench import bench
from support.mnist import write_mnist

pytest.importorskip("torch")

from benchmarks.parallel import sharing, workers
from benchmarks.parallel.workers import PLAIN


def cell(batch, seconds, net="mpi"):
    ways = {way: {"seconds_measured": value, "startup_seconds": value / 10} for way, value in seconds.items()}
    return {"net": net, "rows": 1, **sharing.compared({"batch": batch, "ways": ways, "not_measured": {}})}


def test_targets_are_about_the_worst_cell_of_their_batches():
    cells = [
        cell(128, {"serial": 2.0, PLAIN: 1.0, "threads": 1.2, "auto": 1.0}),
        cell(512, {"serial": 2.0, PLAIN: 1.0, "threads": 1.02, "auto": 1.1}),
        cell(4096, {"serial": 2.0, PLAIN: 1.0, "threads": 1.05, "auto": 1.0}, "cnn"),
    ]
    found = {target.what: target for target in sharing.targets(cells, whole=True)}
    assert found["threads, batch 128"].measured == pytest.approx(1.2)
    assert found["threads, batch 128"].met is False
    large = found["threads, batch 512 and more"]
    assert (large.measured, large.met, large.note) == (pytest.approx(1.05), False, "worst of 2: cnn, batch 4,096")
    assert found["threads: speed-up over one thread"].measured == pytest.approx(2 / 1.05)
    assert found["threads: speed-up over one thread"].met
    assert found["threads: start"].measured == pytest.approx(0.12)
    assert found["auto against the best way"].measured == pytest.approx(1.1)
    assert found["mpi, batch 128"].met is None, "nobody has measured it"


def test_auto_is_compared_with_others_not_with_itself():
    one = cell(512, {"serial": 2.0, PLAIN: 1.0, "auto": 0.9})
    assert one["ways"]["auto"]["against_best"] == pytest.approx(0.9)


def test_bench_sharing(tmp_path, monkeypatch):
    write_mnist(tmp_path / "data" / "mnist", train=400, test=50)
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(workers.Way, "launches", property(lambda way: False))
    real = sharing.descent.all_ways
    here = [way for way in real(2) if "backend" not in way.settings or way.settings["backend"] == "threads"]
    monkeypatch.setattr(sharing.descent, "all_ways", lambda cores: here)
    result = bench(tmp_path / "out", "sharing --nets mpi net-1h --batches 32 --rows 128 --repeats 1")
    assert [one["net"] for one in result["cells"]] == ["mpi", "net-1h"]
    for one in result["cells"]:
        assert set(one["ways"]) == {"serial", "blas", "threads", "threads, exact", PLAIN, "auto"}
        assert one["ways"][PLAIN]["ratio"] == 1
        assert one["ways"]["serial"]["speed_up"] == 1
    assert [target["met"] for target in result["targets"][:2]] == [None, None], "no batch of these sizes"
