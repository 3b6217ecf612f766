"""How well gloo sends and receives at the same time: its collectives between two hosts, against their bytes.

    python tools/duplex.py 100mbit 1gbit        (as root: the hosts are network namespaces)

The factors of `BOTH_WAYS` in src/shoal/planner/cost/collectives.py are from here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

from benchmarks.planner.hosts import hosts
from shoal.planner.cost.cluster import NodeLink

SIZES = {64 << 10: 20, 800 << 10: 8, 8 << 20: 3}  # bytes of the vector: repeats


def child(bandwidth: float) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for size, repeats in SIZES.items():
        half = size // 8  # numbers
        vector, part, whole = torch.zeros(2 * half), torch.zeros(half), torch.zeros(2 * half)
        operations: dict[str, tuple[float, Callable[[], object]]] = {
            "all-reduce": (size, partial(dist.all_reduce, vector)),
            "all-to-all": (size / 2, partial(dist.all_to_all_single, whole, vector)),
            "all-gather": (size / 2, partial(dist.all_gather_single, whole, part)),
        }
        for name, (sent, operation) in operations.items():
            operation()
            dist.barrier()
            begun = time.perf_counter()
            for _ in range(repeats):  # one after the other, as in training; a pause would fill the token bucket again
                operation()
            if dist.get_rank() == 0:
                ratio = (time.perf_counter() - begun) / repeats / (sent / bandwidth)
                print(f"{size:>9,} bytes  {name:<10}  {ratio:.2f} times its bytes over the bandwidth")
    dist.destroy_process_group()


def main(rates: list[str]) -> None:
    for rate in rates:
        print(rate, flush=True)
        with hosts(rate) as made:
            processes = []
            for rank, (prefix, _, device) in enumerate(made):
                own = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": made[0][1], "MASTER_PORT": "29533",
                       "GLOO_SOCKET_IFNAME": device,
                       "DUPLEX_BANDWIDTH": str(NodeLink.parse(rate).bandwidth)}  # fmt: skip
                processes.append(subprocess.Popen([*prefix, sys.executable, __file__], env={**os.environ, **own}))
            for process in processes:
                process.wait(300)


if __name__ == "__main__":
    if "DUPLEX_BANDWIDTH" in os.environ:
        child(float(os.environ["DUPLEX_BANDWIDTH"]))
    else:
        main(sys.argv[1:] or ["100mbit"])
