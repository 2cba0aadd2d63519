"""A folder with archives is one tree of files; the first place that has the files is taken."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import make_tar, make_zip, put, refusal

from fedbr.data import files
from fedbr.data.cache import cache_folder
from fedbr.data.files import Tree, data_folder, natural_key, old_data_folder, unpack


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("FEDBR_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


CONTENT = {"top/a.bin": b"first", "top/deep/b.bin": b"second" * 500, "c.txt": b""}


def all_of(tree):
    return {name: tree.read(name) for name in tree.names}


def test_a_folder(tmp_path):
    tree = Tree.open(put(tmp_path, CONTENT | {".hidden/x": b"", "__MACOSX/y": b"", "top/.z": b""}))
    assert all_of(tree) == CONTENT
    assert tree.files == tree.names
    assert refusal(tree.read, "../x") == f"../x: not in {tmp_path}"


def test_links_in_folders_are_followed_but_not_in_circles(tmp_path):
    put(tmp_path, {"real/a": b"1", "tree/b": b"2"})
    (tmp_path / "tree" / "also").symlink_to(tmp_path / "real")
    (tmp_path / "tree" / "also too").symlink_to(tmp_path / "real")
    (tmp_path / "tree" / "circle").symlink_to(tmp_path / "tree")
    (tmp_path / "tree" / "dead").symlink_to(tmp_path / "nowhere")
    assert all_of(Tree.open(tmp_path / "tree")) == {"also/a": b"1", "also too/a": b"1", "b": b"2"}


def test_the_hint_keeps_other_archives_closed_and_so_does_finding_a_file(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(
        files, "unpack", lambda path, name: opened.append(name) or unpack(path, name)
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


@given(st.lists(st.text("a019 ", max_size=4)))
def test_natural_order_is_total(texts):
    backwards = texts[::-1]
    assert sorted(texts, key=natural_key) == sorted(backwards, key=natural_key)
    numbers = [t for t in texts if t.isdigit()]
    assert sorted(numbers, key=natural_key) == sorted(numbers, key=lambda t: (int(t), t))


def test_downloads_do_not_lie_in_the_cache(monkeypatch):
    monkeypatch.delenv("FEDBR_CACHE")
    assert not data_folder().is_relative_to(cache_folder())
    monkeypatch.setenv("XDG_DATA_HOME", "/elsewhere")
    if sys.platform == "linux":
        assert str(data_folder()) == "/elsewhere/fedbr"
        monkeypatch.delenv("XDG_DATA_HOME")
        assert data_folder() == Path.home() / ".local/share/fedbr"  # where version 0.1 put them


def test_what_version_01_put_on_a_mac_is_still_found(tmp_path, monkeypatch):
    monkeypatch.delenv("FEDBR_DATA", raising=False)
    monkeypatch.setattr(files.Path, "home", lambda: tmp_path)
    monkeypatch.setattr(files.sys, "platform", "darwin")
    old = tmp_path / "Library" / "Application Support" / "fedbr"
    assert old_data_folder() == old
    put(old, {"x.bin": b"old"})
    for new in (tmp_path / "new", put(tmp_path / "made", {"y.bin": b"other"})):
        monkeypatch.setattr(files, "data_folder", lambda new=new: new)
        with files.open_files(
            "", "set", "set", lambda tree: tree.find("x.bin") is not None
        ) as tree:
            assert tree.read("x.bin") == b"old"
