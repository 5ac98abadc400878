"""What running draws as a campaign costs, and what a second process brings.

Claims. On two processors, two jobs make Gram draws of 1000 tokens at least 1.7 times as fast as one job. Storing,
distributing and booking cost at most 20 ms a draw, measured on draws of 2 to 8 tokens less their own computing, with
one job and with two. Finding that nothing is missing among 1000 stored draws of 2000 numbers takes at most 2 s. The
files are the same whatever the number of jobs. One and two jobs take turns, each round gives a ratio, and the claim is
about the median; the load of the machine is told beside it, as other programs on two processors lower the ratio.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from gequiv.attention import Attention
from gequiv.simulation.campaign.execution import compute, run
from gequiv.simulation.campaign.model import Campaign, Model, Plan, spawned_seed
from gequiv.simulation.campaign.store import Store
from validation import _common
from validation._common import Claim

SPEED_LIMIT, OVERHEAD_LIMIT, CHECK_LIMIT = 1.7, 20e-3, 2.0
TOKENS = 1000
TINY = (2, 3, 4, 5, 6, 7, 8)


def campaign(sizes: tuple[int, ...], draws: int, seed: int) -> Campaign:
    """Gram draws of heads of these numbers of tokens."""
    models = []
    for tokens in sizes:
        model = Model("benchmark", Attention(tokens, max(1, tokens // 2), 0.5), Plan(), (), ())
        seeds = tuple(spawned_seed(seed, model.identity, index) for index in range(draws))
        models.append(Model(model.group, model.head, model.plan, (), seeds))
    return Campaign("benchmark", "", "", seed, tuple(models), (), "")


def timed(plan: Campaign, jobs: int) -> tuple[float, dict[str, bytes]]:
    """Seconds of a run from nothing, and the files that it leaves."""
    folder = Path(tempfile.mkdtemp())
    try:
        seconds = run(plan, folder, jobs=jobs).seconds
        return seconds, {path.name: path.read_bytes() for path in folder.glob("draws/*/*.draw")}
    finally:
        shutil.rmtree(folder)


def throughput(rounds: int, draws: int, seed: int) -> tuple[list[Claim], dict[str, Any]]:
    """Two jobs over one."""
    plan = campaign((TOKENS,), draws, seed)
    timed(campaign((TOKENS,), 4, seed), 2)  # starts the workers
    times = []
    same = True
    for _ in range(rounds):
        (one, files), (two, others) = timed(plan, 1), timed(plan, 2)
        times.append((one, two))
        same = same and files == others and len(files) == draws
    ratios = [one / two for one, two in times]
    ratio = statistics.median(ratios)
    claims = [
        Claim(f"two jobs over one, {draws} draws of {TOKENS} tokens", f"{ratio:.2f} times", f"{SPEED_LIMIT:g} times",
              ratio >= SPEED_LIMIT),
        Claim("files of one and of two jobs", "the same" if same else "they differ", "the same", same),
    ]  # fmt: skip
    return claims, {"draws": draws, "seconds": times, "ratios": ratios}


def overhead(draws: int, seed: int) -> tuple[list[Claim], dict[str, Any]]:
    """Time of tiny draws less that of computing them."""
    plan = campaign(TINY, draws, seed)
    tasks = plan.tasks()
    timed(campaign(TINY, 2, seed), 2)
    begin = time.perf_counter()
    for task in tasks:
        compute(task)
    bare = (time.perf_counter() - begin) / len(tasks)
    claims = []
    data: dict[str, Any] = {"draws": len(tasks), "compute": bare}
    for jobs in (1, 2):
        each = timed(plan, jobs)[0] / len(tasks)
        cost = each - bare / jobs
        data[f"jobs {jobs}"] = each
        claims.append(Claim(f"overhead a draw, {jobs} job{'s' * (jobs > 1)}", f"{1e3 * cost:.2f} ms",
                            f"{1e3 * OVERHEAD_LIMIT:g} ms", cost <= OVERHEAD_LIMIT))  # fmt: skip
    return claims, data


def checking(count: int, seed: int) -> tuple[list[Claim], dict[str, Any]]:
    """Reading and checking what is stored."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        keys = [f"{index:064x}" for index in range(count)]
        for key in keys:
            store.put(key, {"values": rng.random(2000)})
        begin = time.perf_counter()
        found = sum(store.has(key) for key in keys)
        seconds = time.perf_counter() - begin
    claim = Claim(f"checking {count} stored draws of 2000 numbers", f"{seconds:.2f} s", f"{CHECK_LIMIT:g} s",
                  seconds <= CHECK_LIMIT and found == count)  # fmt: skip
    return [claim], {"count": count, "seconds": seconds}


def main(argv: list[str] | None = None) -> int:
    quick = "3 rounds of 16 draws"
    options = _common.arguments("benchmarks.campaigns", __doc__ or "", quick=quick).parse_args(argv)
    console = Console(stderr=True)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    claims: list[Claim] = []
    data: dict[str, Any] = {"load_average_before": load, "processors": os.cpu_count()}
    rounds, draws = (3, 16) if options.quick else (7, 40)
    with console.status("measuring"):
        for name, (found, numbers) in {
            "throughput": throughput(rounds, draws, options.seed),
            "overhead": overhead(20 if options.quick else 60, options.seed),
            "checking": checking(1000, options.seed),
        }.items():
            claims += found
            data[name] = numbers
    path = _common.folder(options) / "campaign_benchmarks.json"
    return _common.conclude(path, __doc__ or "", options, claims, data)


if __name__ == "__main__":
    sys.exit(main())
