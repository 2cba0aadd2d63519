"""Folders and archives are read as they are, or refused in one line that says which and where."""

from __future__ import annotations

import os
import tarfile
import tempfile
import warnings
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from making import make_tar, make_zip, put, refusal

from fedbr.data import archives
from fedbr.data.archives import Tree, natural
from fedbr.util.errors import InputError

CONTENT = {"top/a.bin": b"first", "top/deep/b.bin": b"second" * 500, "c.txt": b""}
ARCHIVES = {
    "z.zip": make_zip(CONTENT),
    "t.tar": make_tar(CONTENT),
    "g.tar.gz": make_tar(CONTENT, "w:gz"),
    "s.tgz": make_tar(CONTENT, "w:gz"),
    "UPPER.ZIP": make_zip(CONTENT),
}


def all_of(tree):
    return {name: tree.read(name) for name in tree.names}


def test_a_folder(tmp_path):
    tree = Tree.open(put(tmp_path, CONTENT | {".hidden/x": b"", "__MACOSX/y": b"", "top/.z": b""}))
    assert all_of(tree) == CONTENT
    assert tree.files == tree.names
    assert refusal(tree.read, "../x") == f"../x: not in {tmp_path}"


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_alone_or_in_a_folder_or_one_deeper(tmp_path, name):
    expected = {f"{name}!/{inner}": blob for inner, blob in CONTENT.items()}
    with Tree.open(put(tmp_path, {name: ARCHIVES[name]}) / name) as tree:
        assert all_of(tree) == expected
        assert tree.files == []
    with Tree.open(str(tmp_path)) as tree:
        assert all_of(tree) == expected
    below = {"sub/" + n: blob for n, blob in expected.items()}
    tree = Tree.open(
        put(tmp_path / "x", {"sub/" + name: ARCHIVES[name], "deep/er/" + name: ARCHIVES[name]})
    )
    for _ in range(2):
        assert all_of(tree) == below | {"deep/er/" + name: ARCHIVES[name]}  # deeper, it is a file
        tree.close()  # and can be used again


def test_mac_droppings_and_dots_in_archives(tmp_path):
    content = {"./a.png": b"1", "__MACOSX/._a.png": b"2", ".DS_Store": b"3"}
    put(tmp_path, {"z.zip": make_zip(content), "t.tar": make_tar(content)})
    assert all_of(Tree.open(tmp_path)) == {"t.tar!/a.png": b"1", "z.zip!/a.png": b"1"}


def test_a_tar_that_a_server_decompressed_is_read_by_content(tmp_path):
    put(tmp_path, {"a.tar.gz": make_tar(CONTENT)})
    assert Tree.open(tmp_path).read("a.tar.gz!/c.txt") == b""


def test_links_in_archives(tmp_path):
    links = [("soft", tarfile.SYMTYPE, "/etc/passwd"), ("hard", tarfile.LNKTYPE, "c.txt")]
    links += [("dead", tarfile.LNKTYPE, "soft"), ("folder", tarfile.DIRTYPE, "")]
    soft = zipfile.ZipInfo("soft")
    soft.external_attr = 0o120777 << 16
    put(
        tmp_path,
        {
            "t.tar": make_tar(CONTENT, more=links),
            "z.zip": make_zip({soft: b"/etc/passwd", "x/": b""}),
        },
    )
    with Tree.open(tmp_path) as tree:
        assert tree.names == [f"t.tar!/{n}" for n in [*CONTENT, "hard"]]
        assert tree.read("t.tar!/hard") == CONTENT["c.txt"]


def test_links_in_folders_are_followed_but_not_in_circles(tmp_path):
    put(tmp_path, {"real/a": b"1", "tree/b": b"2"})
    (tmp_path / "tree" / "also").symlink_to(tmp_path / "real")
    (tmp_path / "tree" / "also too").symlink_to(tmp_path / "real")
    (tmp_path / "tree" / "circle").symlink_to(tmp_path / "tree")
    (tmp_path / "tree" / "dead").symlink_to(tmp_path / "nowhere")
    assert all_of(Tree.open(tmp_path / "tree")) == {"also/a": b"1", "also too/a": b"1", "b": b"2"}


@pytest.mark.parametrize(
    "evil", ["../x", "/etc/x", "a/../../x", "..\\x", "C:\\x", "a\\..\\x", "\\x"]
)
@pytest.mark.parametrize("kind", ["z.zip", "t.tar", "g.tar.gz"])
def test_members_that_point_outside_are_refused(tmp_path, evil, kind):
    make = make_zip if kind == "z.zip" else make_tar
    tree = Tree.open(put(tmp_path, {kind: make({"good": b"", evil: b"x"})}))
    assert refusal(lambda: tree.names).startswith(
        f"{kind}: refused, since its member {evil!r} points out"
    )


def test_the_hint_keeps_other_archives_closed_and_so_does_finding_a_file(tmp_path, monkeypatch):
    opened = []
    whole = archives._decompressed
    monkeypatch.setattr(
        archives, "_decompressed", lambda archive, *a: opened.append(archive) or whole(archive, *a)
    )
    small, broken = make_tar(CONTENT, "w:gz"), b"\x1f\x8bnot a gzip file"
    put(
        tmp_path,
        {
            "cifar-10.tar.gz": small,
            "x/Cifar-10b.tgz": small,
            "cifar-100.tgz": broken,
            "a.zip": b"",
            "a.bin": b"",
        },
    )
    tree = Tree.open(tmp_path, hint="cifar-10(?!0)")
    assert tree.files == ["a.bin"]
    assert tree.find("a.bin") == "a.bin"  # though the archives have one too
    assert opened == []
    assert set(all_of(tree)) == {"a.bin"} | {
        f"{a}!/{n}" for a in ("cifar-10.tar.gz", "x/Cifar-10b.tgz") for n in CONTENT
    }
    all_of(tree)
    assert opened == ["cifar-10.tar.gz", "x/Cifar-10b.tgz"]  # once each
    assert "cifar-100.tgz: " in refusal(lambda: Tree.open(tmp_path, hint="cifar-100").names)


def test_find(tmp_path):
    put(
        tmp_path,
        {"a/train": b"", "a/test.gz": b"", "b/xtrain": b"", "b/twice": b"", "a/twice": b""},
    )
    put(tmp_path, {"z.zip": make_zip({"inner/train": b"", "only": b"", "deep/only2": b""})})
    tree = Tree.open(tmp_path)
    assert tree.find("test", "test.gz") == "a/test.gz"
    assert tree.find("train") == "a/train"
    assert tree.find("inner/train") == "z.zip!/inner/train"
    assert tree.need("only") == "z.zip!/only"
    assert tree.need("only2") == "z.zip!/deep/only2"
    assert tree.find("rain") is None
    assert refusal(tree.need, "rain", "rain.gz") == f"{tmp_path}: has no rain or rain.gz"
    assert "has twice more than once (a/twice, b/twice)" in refusal(tree.find, "twice")


def test_what_is_missing_may_be_in_an_archive_of_another_name(tmp_path):
    put(tmp_path, {"data.zip": make_zip({"only": b""}), "pacs.zip": make_zip({"a": b""})})
    message = refusal(Tree.open(tmp_path, "pacs").need, "only")
    assert message == f"{tmp_path}: has no only; data.zip was not opened: its name has no 'pacs'"
    put(tmp_path, {f"{i}.zip": b"never opened" for i in range(3)})
    message = refusal(Tree.open(tmp_path, "pacs").need, "only")
    assert message.endswith(
        "; 0.zip, 1.zip, 2.zip, ... were not opened: their names have no 'pacs'"
    )
    assert (
        Tree.open(tmp_path / "data.zip", "pacs").need("only") == "data.zip!/only"
    )  # named, so opened
    assert "not opened" not in refusal(Tree.open(tmp_path / "data.zip", "pacs").need, "b")


def test_a_large_tar_goes_to_a_temporary_file(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "_IN_MEMORY", 100)
    put(tmp_path, {"g.tgz": ARCHIVES["s.tgz"]})
    assert all_of(Tree.open(tmp_path / "g.tgz")) == {
        f"g.tgz!/{n}": blob for n, blob in CONTENT.items()
    }


def test_what_is_not_there_or_no_archive(tmp_path):
    assert (
        refusal(Tree.open, tmp_path / "no") == f"{tmp_path / 'no'}: there is no such file or folder"
    )
    put(tmp_path, {"x.npz": b""})
    assert "x.npz: neither a folder nor an archive (.zip, .tar, " in refusal(
        Tree.open, tmp_path / "x.npz"
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read(tmp_path):
    put(tmp_path, {"a": b"", "z.zip": b""})
    for name in ("a", "z.zip"):
        (tmp_path / name).chmod(0)
    assert refusal(Tree.open(tmp_path).read, "a") == "a: cannot be read (Permission denied)"


@pytest.mark.parametrize(
    ("name", "blob", "words"),
    [
        (
            "z.zip",
            ARCHIVES["z.zip"][:-30],
            f"z.zip: ends at byte {len(ARCHIVES['z.zip']) - 30} without the directory",
        ),
        ("z.zip", b"", "z.zip: ends at byte 0 without"),
        (
            "z.zip",
            make_zip({"a": b"abc"}, zipfile.ZIP_STORED).replace(b"abc", b"abd"),
            "z.zip!/a: cannot be read (Bad CRC-32",
        ),
        (
            "g.tgz",
            ARCHIVES["s.tgz"][:-30],
            f"g.tgz: ends at byte {len(ARCHIVES['s.tgz']) - 30}, in the middle",
        ),
        ("g.tgz", ARCHIVES["s.tgz"][:-5] + b"\0" * 5, "g.tgz: damaged before byte"),
        ("t.tar", ARCHIVES["t.tar"][:1024], "t.tar: damaged or cut short at byte 1024 of the tar"),
        ("t.tar", ARCHIVES["t.tar"][:1500], "t.tar: damaged or cut short at byte 1024 of the tar"),
        (
            "t.tar",
            ARCHIVES["t.tar"][:1100] + b"?" + ARCHIVES["t.tar"][1101:],
            "t.tar: damaged or cut short at byte 1024",
        ),
        ("t.tar", ARCHIVES["t.tar"][:2000], "t.tar: cannot be read (unexpected end of data)"),
        ("t.tar", b"<html>not found</html>" * 100, "t.tar: cannot be read (invalid header)"),
    ],
    ids=[
        "zip cut",
        "zip empty",
        "zip sum",
        "gz cut",
        "gz sum",
        "tar cut",
        "in header",
        "header",
        "in member",
        "html",
    ],
)
def test_damaged_archives(tmp_path, name, blob, words):
    assert words in refusal(lambda: all_of(Tree.open(put(tmp_path, {name: blob}))))


def test_an_encrypted_zip(tmp_path):
    blob = bytearray(make_zip({"a": b"abc"}))
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        blob[blob.index(header) + flags] |= 1
    assert "z.zip!/a: cannot be read (" in refusal(
        Tree.open(put(tmp_path, {"z.zip": blob})).read, "z.zip!/a"
    )


def test_a_name_with_a_line_break_makes_no_second_line(tmp_path):
    blob = make_zip({"Icon\r": b"abc"}, zipfile.ZIP_STORED).replace(b"abc", b"abd")
    assert refusal(Tree.open(put(tmp_path, {"z.zip": blob})).read, "z.zip!/Icon\r").startswith(
        "z.zip!/Icon : cannot be"
    )


@pytest.mark.parametrize("name", ["z.zip", "t.tar", "g.tar.gz"])
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_damage_is_refused_or_does_not_matter(name, data):
    blob = bytearray(ARCHIVES[name])
    for _ in range(data.draw(st.integers(1, 3))):
        blob[data.draw(st.integers(0, min(len(blob), 4000) - 1))] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            all_of(Tree.open(put(Path(folder), {name: blob})))
            message = name
        except InputError as error:  # and nothing else
            message = str(error)
    assert message.startswith(name)
    assert len(message.splitlines()) == 1


@given(st.lists(st.text("a019 ", max_size=4)))
def test_natural_order_is_total(texts):
    backwards = texts[::-1]
    assert sorted(texts, key=natural) == sorted(backwards, key=natural)
    numbers = [t for t in texts if t.isdigit()]
    assert sorted(numbers, key=natural) == sorted(numbers, key=lambda t: (int(t), t))
