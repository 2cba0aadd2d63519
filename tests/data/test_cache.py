"""What was made once is found again; nothing else is."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from making import put

from fedbr.data import cache as caching
from fedbr.data.cache import cache_folder, load_or_make


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


ARRAYS = {
    "x": np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    "turned": np.arange(6.0).reshape(2, 3).T,
    "part": np.arange(20)[::3],
    "big-endian": np.arange(3, dtype=">u4"),
    "scalar": np.array(2.5),
    "none": np.zeros((0, 5), np.float32),
    "flags": np.array([True, False]),
}


def check_arrays(arrays):
    assert arrays.keys() == ARRAYS.keys()
    for key, array in arrays.items():
        np.testing.assert_array_equal(array, ARRAYS[key])
        assert array.shape == ARRAYS[key].shape
        assert array.dtype == ARRAYS[key].dtype.newbyteorder("=")


def never():
    raise AssertionError("the cache was not used")


def test_what_was_made_once_is_not_made_again(cache):
    check_arrays(load_or_make(["a", b"b"], lambda: ARRAYS))
    loaded = load_or_make(iter(["a", b"b"]), never)
    check_arrays(loaded)
    for array in loaded.values():
        array.fill(0)  # writable, and nobody else's
    check_arrays(load_or_make(["a", b"b"], never))
    assert [path.suffix for path in cache.iterdir()] == [".safetensors"]  # no temporary file stays


@pytest.mark.parametrize(
    "parts", [["a", b"c"], ["ab"], ["a", "b"], [b"a", b"b"], ["a", b"b", ""], []]
)
def test_other_parts_are_another_key(parts):
    load_or_make(["a", b"b"], lambda: ARRAYS)
    assert load_or_make(parts, lambda: {"x": np.zeros(1)}).keys() == {"x"}


def test_a_damaged_cache_is_made_anew(cache):
    load_or_make(["k"], lambda: ARRAYS)
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    damages = [b"", whole[:-1], whole + b"!", b"garbage", whole[:-1] + bytes([whole[-1] ^ 1])]
    damages += [
        bytes([*whole[:i], whole[i] ^ 1, *whole[i + 1 :]]) for i in range(8, len(whole), 37)
    ]
    for blob in damages:
        path.write_bytes(blob)
        made = []
        check_arrays(load_or_make(["k"], lambda made=made: made.append(1) or ARRAYS))
        assert made == [1]
        assert path.read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_no_matter(tmp_path, monkeypatch):
    put(tmp_path, {"file": b""})
    monkeypatch.setenv("FEDBR_CACHE", str(tmp_path / "file"))
    check_arrays(load_or_make(["k"], lambda: ARRAYS))
    monkeypatch.setenv("FEDBR_CACHE", "/proc/nowhere")
    check_arrays(load_or_make(["k"], lambda: ARRAYS))


def test_an_interrupted_write_leaves_nothing(cache, monkeypatch):
    def broken(_, path):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(caching.safetensors.numpy, "save_file", broken)
    with pytest.raises(KeyboardInterrupt):
        load_or_make(["k"], lambda: ARRAYS)
    assert list(cache.iterdir()) == []


def test_mistakes_of_the_maker_are_not_hidden(cache):
    with pytest.raises(ZeroDivisionError):
        load_or_make(["k"], lambda: 1 / 0)
    assert not cache.exists()


def test_where_the_cache_is(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.setenv("FEDBR_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/fedbr")
    monkeypatch.delenv("XDG_CACHE_HOME")
    if sys.platform == "linux":  # where version 0.1 had it
        assert cache_folder() == Path.home() / ".cache/fedbr"
