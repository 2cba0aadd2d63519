"""fedbr list: what there is, from the tables themselves."""

from __future__ import annotations

import pytest

from fedbr.cli.app import call
from fedbr.cli.list_ import KINDS
from fedbr.data import DATASETS, PARTITIONS
from fedbr.methods import METHODS
from fedbr.metrics import METRICS
from fedbr.models import MODELS
from fedbr.recipe.load import list_shipped

TABLES = {
    "methods": METHODS,
    "data": DATASETS,
    "models": MODELS,
    "partitions": PARTITIONS,
    "metrics": METRICS,
    "recipes": list_shipped(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_entry_of_a_table_has_a_line(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["list", kind]) == 0
    lines = capsys.readouterr().out.splitlines()
    heads = [line for line in lines if line and not line.startswith(" ")]
    for name in TABLES[kind]:
        (head,) = [line for line in heads if line.startswith(f"{name} ")]
        assert len(head) > len(name) + 10


def test_metrics_say_what_they_give_and_how_it_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["list", "metrics"]) == 0
    shown = capsys.readouterr().out
    for words in (
        "accuracy Accuracy of the global model",
        "per round: accuracy_clients  accuracy of the global model on the common test set",
        "with clients' own tests: accuracy of the global model on the client's own test set",
        "per run: accuracy.top5  mean of the 5 best",
        "per run: rounds_to  first round",
        "per run: accuracy.worst_top5  mean of",
        "per run: bytes.up  sum of bytes_up over the rounds",
        "adds up: right answers are counted at each site",
        "package.module:Class Yours: a subclass of fedbr.Metric",
    ):
        assert words in shown
    assert shown.count("adds up: ") == len(METRICS)


def test_an_unknown_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["list", "metric"]) == 2
    error = capsys.readouterr().err
    assert "list = 'metric' is unknown; did you mean 'metrics'?" in error
    assert error.count("\n") == 1
