"""Files for a paper: read back, escaped, and written whole."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from folders import make, read_one
from PIL import Image

from fedbr.cli.app import call
from fedbr.report.curves import curve
from fedbr.report.files import KINDS, beside, export
from fedbr.report.formats import latex, markdown
from fedbr.report.plots import column_pictures
from fedbr.report.read import read
from fedbr.run.csv_files import format_csv
from fedbr.util.errors import InputError

FIGURES = {
    f"accuracy-by-{unit}.{kind}"
    for unit in ("round", "seconds", "megabytes")
    for kind in ("png", "svg", "pdf")
}
TABLES = {"comparison.tex", "paired.tex", "cost.tex", "tables.md"}


def test_nobody_elses_files_are_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "o")
    page, folder = tmp_path / "page.html", tmp_path / "page"
    line = ["report", str(tmp_path / "o"), "--out", str(page)]
    folder.mkdir()
    (folder / "tables.md").write_text("mine")
    assert call(line) == 2
    assert "which was not created by fedbr report" in capsys.readouterr().err
    assert not page.exists()
    (folder / "tables.md").unlink()
    page.write_text("<html>mine</html>")
    assert call(line) == 2
    assert "was not created by fedbr report" in capsys.readouterr().err
    assert page.read_text() == "<html>mine</html>"
    assert not list(folder.iterdir())
    page.unlink()
    assert call(line) == 0
    assert call(line) == 0  # an earlier report is replaced
    in_the_way = str(tmp_path / "o.html")  # beside it lies the result folder itself
    assert call([*line[:-1], in_the_way]) == 2
    assert "which was not created by fedbr report" in capsys.readouterr().err
    assert not (tmp_path / "o" / "tables.md").exists()


def test_a_report_of_several_folders_leaves_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [make(tmp_path / name, seeds=[0]).path for name in ("a", "b")]
    others = [make(tmp_path / "other" / name, seeds=[0]).path for name in ("a", "b")]
    assert call(["report", str(folders[0])]) == 0
    own = (tmp_path / "a" / "report.html").read_bytes()
    capsys.readouterr()
    assert call(["report", *map(str, folders)]) == 0
    page = tmp_path / "a+b.html"
    assert f"Report: {page}\n" in capsys.readouterr().out
    assert (tmp_path / "a" / "report.html").read_bytes() == own
    assert (tmp_path / "a+b" / "1-a" / "tables.md").exists()
    page.write_text(page.read_text("utf-8") + "<!-- old -->", "utf-8")
    assert call(["report", *map(str, folders)]) == 0  # the same folders again
    assert "<!-- old -->" not in page.read_text("utf-8")
    written = page.read_bytes()
    assert call(["report", str(folders[0]), str(others[1])]) == 2  # others, of the same name
    assert "is the report of other folders" in capsys.readouterr().err
    assert page.read_bytes() == written
    page.write_text("<html>mine</html>")
    assert call(["report", *map(str, folders)]) == 2
    assert "was not created by fedbr report" in capsys.readouterr().err
    assert page.read_text() == "<html>mine</html>"


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


def test_all_files_of_a_folder(tmp_path: Path) -> None:
    make(tmp_path / "o", labels=["FedAvg", 'a, "b" & c_d'], every=2)
    written = export(read([tmp_path / "o"]), tmp_path / "files")
    assert {file.name for file in written} == FIGURES | TABLES | {"runs.csv", "rounds.csv"}
    assert {file.name for file in (tmp_path / "files").iterdir()} == {file.name for file in written}
    runs = rows(tmp_path / "files" / "runs.csv")
    labelled = [(run["label"], run["seed"]) for run in runs]
    assert labelled[3:] == [('a, "b" & c_d', str(seed)) for seed in range(3)]
    assert float(runs[0]["accuracy_final"]) == pytest.approx(0.9 * (1 - 0.8**5))
    rounds = rows(tmp_path / "files" / "rounds.csv")
    assert len(rounds) == 2 * 3 * 10
    assert (rounds[0]["accuracy"], rounds[0]["megabytes_so_far"]) == ("", "3.0")
    assert float(rounds[9]["seconds_so_far"]) == pytest.approx(5.0)
    text = (tmp_path / "files" / "paired.tex").read_text()
    assert r'a, "b" \& c\_d & +' in text
    assert text.count(r"\\") == 2
    for file in (tmp_path / "files").glob("*.svg"):
        ElementTree.fromstring(file.read_text())
    with Image.open(tmp_path / "files" / "accuracy-by-round.png") as picture:
        assert picture.width == 990  # a column of 3.3 inches at 300 dots each


def test_the_same_bytes_every_time(tmp_path: Path) -> None:
    folder = read_one(make(tmp_path / "o").path)
    curves = {variant.label: curve(variant.runs) for variant in folder.begun}
    once, again = (dict(column_pictures(curves, "seconds", KINDS)) for _ in range(2))
    assert once.keys() == set(KINDS)
    assert once == again


def test_several_folders_have_a_place_each(tmp_path: Path) -> None:
    make(tmp_path / "o", seeds=[0])
    make(tmp_path / "p" / "o", seeds=[0], labels=["$x$", "b"])
    written = export(read([tmp_path / "o", tmp_path / "p" / "o"]), tmp_path / "files")
    places = {f.relative_to(tmp_path / "files").as_posix() for f in written if f.suffix == ".md"}
    assert places == {"1-o/tables.md", "2-o__2_/tables.md"}
    assert {row["folder"] for row in rows(tmp_path / "files" / "rounds.csv")} == {"o", "o (2)"}


def test_folders_without_a_round(tmp_path: Path) -> None:
    folder = make(tmp_path / "o")
    for file in (folder.path / "runs").rglob("*.*"):
        file.unlink()
    written = export(read([tmp_path / "o"]), tmp_path / "files")
    assert {file.name for file in written} == {"runs.csv", "rounds.csv"}


def test_text_is_escaped() -> None:
    table = (["", "a"], [["50 % _ & # $ { } ~ ^ \\ < >", "1 ± 2 −3 × †"]])
    written = latex(table, "50 %", "x")
    assert r"50 \% \_ \& \# \$ \{ \} $\sim$ \textasciicircum{} \textbackslash{} $<$ $>$" in written
    assert r"1 $\pm$ 2 $-$3 $\times$ $^\dagger$" in written
    assert r"\caption{50 \%}" in written
    assert markdown((["", "a"], [["<b>|*_", "1"]])).splitlines()[2] == r"| &lt;b&gt;\|\*\_ | 1 |"
    assert format_csv([{"a": 1}, {"b": "x,y"}]) == 'a,b\n1,\n,"x,y"\n'


def test_the_folder_beside_a_page() -> None:
    assert beside(Path("o/report.html")) == Path("o/report")
    assert beside(Path("o/page")) == Path("o/page-files")


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    make(tmp_path / "o", seeds=[0])
    (tmp_path / "files").write_text("mine")
    with pytest.raises(InputError, match="cannot write there"):
        export(read([tmp_path / "o"]), tmp_path / "files")


def test_the_command_says_what_is_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "o", seeds=[0])
    assert call(["report", str(tmp_path / "o")]) == 0
    said = capsys.readouterr().out
    assert f"Report: {tmp_path}/o/report.html" in said
    assert f"Beside it, in {tmp_path}/o/report:" in said
    assert "runs.csv, rounds.csv" in said
    assert (tmp_path / "o" / "report" / "accuracy-by-seconds.svg").exists()


def test_words_in_markdown_are_not_markup(tmp_path: Path) -> None:
    make(tmp_path / "o", labels=["FedAvg", "<img src=x onerror=alert(1)>"])
    export(read([tmp_path / "o"]), tmp_path / "e")
    text = (tmp_path / "e" / "tables.md").read_text("utf-8")
    assert text.startswith("&lt;img src=x onerror=alert(1)&gt; is ahead of FedAvg")
    assert "<img" not in text


def test_several_folders_have_different_latex_labels(tmp_path: Path) -> None:
    folders = [make(tmp_path / name).path for name in ("a", "b")]
    files = export(read(folders), tmp_path / "e")
    labels = []
    for file in files:
        if file.suffix == ".tex":
            labels += re.findall(r"label{(.*?)}", file.read_text("utf-8"))
    assert len(labels) == len(set(labels)) == 6


def test_a_folder_of_folders_says_where_the_results_are(tmp_path: Path) -> None:
    make(tmp_path / "sweep" / "final")
    with pytest.raises(InputError, match=r"there are some in .*final"):
        read([tmp_path / "sweep"])
