"""Archives are unpacked as they are, or refused in one line that says which and where."""

from __future__ import annotations

import tarfile
import tempfile
import warnings
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from making import make_tar, make_zip, put, refusal

from fedbr.data import unpack as unpacking
from fedbr.data.files import Tree
from fedbr.data.unpack import unpack
from fedbr.util.errors import InputError


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FEDBR_CACHE", str(folder))
    return folder


CONTENT = {"top/a.bin": b"first", "top/deep/b.bin": b"second" * 500, "c.txt": b""}
ARCHIVES = {
    "z.zip": make_zip(CONTENT),
    "t.tar": make_tar(CONTENT),
    "g.tar.gz": make_tar(CONTENT, "w:gz"),
    "s.tgz": make_tar(CONTENT, "w:gz"),
    "UPPER.ZIP": make_zip(CONTENT),
}


def contents(unpacked):
    return {name: unpacked.read(name) for name in unpacked.members}


def all_of(tree):
    return {name: tree.read(name) for name in tree.names}


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_alone_or_in_a_folder_or_one_deeper(tmp_path, name):
    expected = {f"{name}!/{inner}": blob for inner, blob in CONTENT.items()}
    tree = Tree.open(put(tmp_path, {name: ARCHIVES[name]}) / name)
    assert all_of(tree) == expected
    assert tree.files == []
    assert all_of(Tree.open(str(tmp_path))) == expected
    below = {"sub/" + n: blob for n, blob in expected.items()}
    tree = Tree.open(
        put(tmp_path / "x", {"sub/" + name: ARCHIVES[name], "deep/er/" + name: ARCHIVES[name]})
    )
    assert all_of(tree) == below | {"deep/er/" + name: ARCHIVES[name]}  # deeper, it is a file


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
    tree = Tree.open(tmp_path)
    assert tree.names == [f"t.tar!/{n}" for n in [*CONTENT, "hard"]]
    assert tree.read("t.tar!/hard") == CONTENT["c.txt"]


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
        (
            "t.tar",
            ARCHIVES["t.tar"][:2000],
            "t.tar!/top/deep/b.bin: cannot be read (unexpected end of data)",
        ),
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


def test_an_archive_is_unpacked_once_wherever_it_lies(tmp_path, cache, monkeypatch):
    put(tmp_path, {"z.zip": ARCHIVES["z.zip"], "elsewhere/copy.zip": ARCHIVES["z.zip"]})
    first = unpack(tmp_path / "z.zip", "z.zip")
    assert contents(first) == CONTENT
    monkeypatch.setattr(unpacking, "_unpack_zip", None)
    assert unpack(tmp_path / "elsewhere" / "copy.zip", "copy.zip") == first
    (folder,) = (cache / "unpacked").iterdir()
    assert sorted(file.name for file in folder.iterdir()) == ["content", "names.json"]


@pytest.mark.parametrize("kind", ["z.zip", "g.tar.gz"])
def test_nothing_lies_anywhere_else(tmp_path, cache, kind):
    """All is kept in one file: not even a name that is taken for a plain one says where."""
    make = make_zip if kind == "z.zip" else make_tar
    names = ["a", "A", "con", "aux.png", "x:y", "~", "$HOME", "%2e%2e", "names.json", "content"]
    put(tmp_path, {kind: make({name: name.encode() for name in names})})
    before = set(tmp_path.rglob("*"))
    tree = Tree.open(tmp_path)
    assert all_of(tree) == {f"{kind}!/{name}": name.encode() for name in names}
    assert set(tmp_path.rglob("*")) == before
    (folder,) = (cache / "unpacked").iterdir()
    assert {file.name for file in folder.iterdir()} == {"content", "names.json"}


def test_what_somebody_deleted_or_cut_is_unpacked_again(tmp_path, cache):
    put(tmp_path, {"z.zip": ARCHIVES["z.zip"]})
    first = unpack(tmp_path / "z.zip", "z.zip")
    content, index = first.folder / "content", first.folder / "names.json"
    for damage in (
        content.unlink,
        index.unlink,
        lambda: content.write_bytes(b"cut"),
        lambda: index.write_text("[]"),
        lambda: index.write_text("{"),
    ):
        damage()
        again = unpack(tmp_path / "z.zip", "z.zip")
        assert contents(again) == CONTENT
        assert again == first


def test_a_cache_that_cannot_be_written_is_no_matter(tmp_path, monkeypatch):
    put(tmp_path, {"file": b"", "z.zip": ARCHIVES["z.zip"]})
    monkeypatch.setenv("FEDBR_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert contents(unpack(tmp_path / "z.zip", "z.zip")) == CONTENT


def test_an_interrupted_unpacking_leaves_nothing(tmp_path, cache, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    put(tmp_path, {"z.zip": ARCHIVES["z.zip"]})
    monkeypatch.setattr(unpacking.shutil, "copyfileobj", interrupted)
    with pytest.raises(KeyboardInterrupt):
        unpack(tmp_path / "z.zip", "z.zip")
    assert list((cache / "unpacked").iterdir()) == []


def test_another_process_may_be_faster(tmp_path, cache, monkeypatch):
    put(tmp_path, {"z.zip": ARCHIVES["z.zip"]})
    unpack_zip = unpacking._unpack_zip

    def slow(*arguments):
        monkeypatch.setattr(unpacking, "_unpack_zip", unpack_zip)
        unpack(tmp_path / "z.zip", "z.zip")
        unpack_zip(*arguments)

    monkeypatch.setattr(unpacking, "_unpack_zip", slow)
    assert contents(unpack(tmp_path / "z.zip", "z.zip")) == CONTENT


@pytest.mark.parametrize("kind", ["z.zip", "g.tar.gz", "t.tar"])
def test_size_bombs_are_refused_before_they_fill_the_disk(tmp_path, cache, monkeypatch, kind):
    monkeypatch.setattr(unpacking, "ALWAYS_ALLOWED", 10**5)
    blob = make_zip({"x": bytes(10**6)})
    if kind == "g.tar.gz":
        blob = make_tar({"x": bytes(10**6)}, "w:gz")
    if kind == "t.tar":  # a sparse file may say any size
        info = tarfile.TarInfo("x")
        info.size = 10**9
        blob = info.tobuf() + bytes(10**4)
    put(tmp_path, {kind: blob})
    message = (
        f"{kind}: refused, since its {len(blob):,} bytes unpack to more than 100 times as many"
    )
    assert refusal(unpack, tmp_path / kind, kind) == message
    assert list((cache / "unpacked").iterdir()) == []
    put(
        tmp_path, {kind: make_zip({"x": bytes(10**5)}) if kind == "z.zip" else make_tar({"x": b""})}
    )
    assert unpack(tmp_path / kind, kind).members.keys() == {"x"}
