"""The bench measures what it says: everybody does the same steps, in turn."""

from dataclasses import replace

from fedbr import bench


def test_the_race_is_fair() -> None:
    work = replace(bench.PAPER_CNN, options={"width": 0.1}, shape=(1, 8, 8), local_steps=3, batch_size=4)
    ticks: list[int] = []
    loop, ratios = bench.measure(work, 2, bench.standard(), lambda: ticks.append(1))
    assert loop > 0
    assert [r.name for r in ratios] == ["FedAvg", "FedBR"]
    assert all(len(r.values) == 2 and min(r.values) > 0 for r in ratios)
    assert len(ticks) == 2 * (2 * 3 + 3 + 3)  # so small a model trains both clients in one step
