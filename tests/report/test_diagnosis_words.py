"""A diagnosis in words and as a table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedbr.report.diagnosis import about, rarity, sentences, table
from fedbr.run.diagnosis import ClientClasses, DiagnosisRecord, Measures, Models, read

OLD = Path(__file__).parent.parent / "golden" / "v0.1" / "finished"


def record() -> DiagnosisRecord:
    saved = read(OLD)
    assert saved is not None
    return saved.record


def test_what_version_0_1_said() -> None:
    assert about(record()) == (
        "Global model of FedAvg, seed 0, after round 4 of 4; 4 clients; 3 local steps of 8, lr "
        "0.05; 350 of 359 test samples, 35 per class"
    )
    header, rows = table(record())
    assert header == ["", "global", "FedAvg", "Component 1", "Component 2", "FedBR"]
    assert rows[0] == ["accuracy %", "13.4", "10.1", "10.1", "10.1", "10.1"]
    assert rows[3] == ["X2 taken for seen %", "52.4", "72.4", "72.7", "72.4", "72.7"]
    assert rows[-2] == ["cosine of updates", "-", "-0.17", "-0.17", "-0.17", "-0.17"]
    said = sentences(record())
    assert len(said) == 4
    assert said[0] == (
        "FedAvg: of samples of classes that a client has never seen, its model takes 72.4 % for "
        "classes that it has seen (51.5 % of the probability)."
    )
    assert said[1] == (
        "Component 1 against FedAvg: share 72.4 → 72.7 %, probability 51.5 → 51.5 %, shift of "
        "features on X1 0.145 → 0.146, on X2 0.138 → 0.138, X1 | X2 by nearest mean 61.1 → 61.1 %."
    )


def test_what_was_left_out_and_done_before() -> None:
    facts = replace(
        record().about,
        source=None,
        clients=(3, 7),
        clients_in_all=1200,
        samples_per_class=(10, 35),
        pretrain_epochs=1,
        epochs=2,
        start="features",
    )
    assert about(replace(record(), about=facts)) == (
        "The model given; trained for 1 epoch on all data; classifiers begin fresh; clients 3, 7 "
        "(drawn from 1,200); 3 local steps (2 epochs) of 8, lr 0.05; 350 of 359 test samples, 10 "
        "to 35 per class"
    )


def test_a_variant_that_diverged() -> None:
    first, *others = record().variants
    nothing = Models(Measures(), [])
    lost = replace(first, diverged="round 1, client 0: why", models=nothing)
    some = replace(record(), variants=[lost, *others])
    assert table(some)[1][0][2] == "diverged"
    assert table(some)[1][1][2] == "-"
    assert sentences(some)[0] == "FedAvg: diverged (round 1, client 0: why)."
    assert sentences(some)[1].startswith("Component 1: of samples of classes")


def test_how_little_was_seen() -> None:
    never = ClientClasses(0, seen=(0,), unseen=(1,), scarce=False)
    hardly = ClientClasses(1, seen=(0,), unseen=(1,), scarce=True)
    all_of_it = ClientClasses(2, seen=(0, 1), unseen=(), scarce=False)
    assert rarity([never, all_of_it]) == "never"
    assert rarity([hardly, all_of_it]) == "hardly"
    assert rarity([hardly, never]) == "never or hardly"
    assert rarity([all_of_it]) == ""
