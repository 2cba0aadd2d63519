"""Downloads go on where they broke, and nothing gets its name before its checksum is right."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import re
import socket
import sys
import threading
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from fedbr.cli.app import call
from fedbr.data import DATASETS, download
from fedbr.data.download import get
from fedbr.data.published import Published, RemoteFile
from fedbr.data.sources import cifar, mnist, pacs
from fedbr.util.errors import InputError, RunError

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
BLOB = np.random.default_rng(0).bytes(300_000)


@dataclass
class Site:
    """What a server has, and how it misbehaves."""

    blob: bytes = BLOB
    ranges: bool = True
    length: bool = True
    cuts: list[int] = field(
        default_factory=list
    )  # one for each of the next answers: bytes before it breaks
    answers: list[int] = field(default_factory=list)  # codes of the next answers
    content_range: str = ""
    hangs: int = 0
    asked: list[str] = field(default_factory=list)  # the Range of each request


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        site = self.server.sites[self.path]
        wanted = self.headers.get("Range", "")
        site.asked.append(wanted)
        if site.hangs:
            site.hangs -= 1
            self.server.leave.wait(10)
            return
        if site.answers:
            self.send_error(site.answers.pop(0))
            return
        start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and site.ranges else 0
        if start >= len(site.blob):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            whole = f"bytes {start}-{len(site.blob) - 1}/{len(site.blob)}"
            self.send_header("Content-Range", site.content_range or whole)
        if site.length:
            self.send_header("Content-Length", str(len(site.blob) - start))
        self.end_headers()
        end = start + site.cuts.pop(0) if site.cuts else None
        self.wfile.write(site.blob[start:end])


class Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.sites: dict[str, Site] = {}
        self.leave = threading.Event()
        self.thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self.thread.start()

    def address(self, site: Site, name: str = "x.bin") -> str:
        self.sites[f"/{len(self.sites)}/{name}"] = site
        return f"http://127.0.0.1:{self.server_port}/{len(self.sites) - 1}/{name}"


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    monkeypatch.setattr(download, "CHUNK", 1000)
    server = Server()
    yield server
    server.leave.set()
    server.shutdown()
    server.server_close()


def remote(*addresses, name="x.bin", blob=BLOB):
    return RemoteFile(name, len(blob), hashlib.md5(blob).hexdigest(), addresses)


def fetch(target, *files):
    reported = []
    paths = get(Published("set", files), target, lambda *a: reported.append(a))
    return paths, reported


def check(target, reported=None, blob=BLOB):
    assert [path.name for path in target.iterdir()] == ["x.bin"]  # and no .part
    assert (target / "x.bin").read_bytes() == blob
    if reported is not None:
        assert reported[-1] == (len(blob), len(blob))
        assert all(0 <= done <= total == len(blob) for done, total in reported)


def refusal(kind, target, *remotes):
    with pytest.raises(kind) as error:
        fetch(target, *remotes)
    assert "\n" not in str(error.value)
    assert not (target / "x.bin").exists()
    return str(error.value)


def test_a_download_and_its_progress(server, tmp_path):
    site = Site()
    target = tmp_path / "new" / "folder"
    paths, reported = fetch(target, remote(server.address(site)))
    assert paths == [target / "x.bin"]
    check(target, reported)
    assert [done for done, _ in reported] == sorted(done for done, _ in reported)
    assert site.asked == [""]
    assert get(Published("set", [remote(server.address(site))]), target) == paths
    assert site.asked == [""]  # it was there


def test_several_files_are_one_progress(server, tmp_path):
    small = b"small" * 10
    (tmp_path / "there").write_bytes(small)
    remotes = [remote("", name="there", blob=small), remote(server.address(Site()))]
    paths, reported = fetch(tmp_path, *remotes)
    assert [path.name for path in paths] == ["there", "x.bin"]
    assert all(50 < done <= 300_050 == total for done, total in reported)
    assert reported[-1] == (300_050, 300_050)


@pytest.mark.parametrize("length", [True, False])
def test_broken_connections_go_on_where_they_broke(server, tmp_path, length):
    site = Site(cuts=[100_000, 1000, 0, 50_000, 0, 0], length=length)
    _, reported = fetch(tmp_path, remote(server.address(site)))
    check(tmp_path, reported)
    starts = (100_000, 101_000, 101_000, 151_000, 151_000, 151_000)
    assert site.asked == ["", *(f"bytes={start}-" for start in starts)]


def test_an_interrupted_download_goes_on_later(server, tmp_path):
    site = Site()

    def stop(done, _):
        if done > 100_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get(Published("set", [remote(server.address(site))]), tmp_path, stop)
    size = (tmp_path / "x.bin.part").stat().st_size
    assert 100_000 < size < 300_000
    _, reported = fetch(tmp_path, remote(server.address(site)))
    check(tmp_path, reported)
    assert site.asked == ["", f"bytes={size}-"]
    assert all(done > size for done, _ in reported)


def test_a_server_without_ranges_starts_over(server, tmp_path):
    site = Site(ranges=False, cuts=[200_000, 1000])
    check(tmp_path, fetch(tmp_path, remote(server.address(site)))[1])
    assert site.asked == ["", "bytes=200000-", "bytes=1000-"]


def test_a_whole_part_is_only_checked(server, tmp_path):
    (tmp_path / "x.bin.part").write_bytes(BLOB)
    site = Site()
    fetch(tmp_path, remote(server.address(site)))
    check(tmp_path)
    assert site.asked == []


@pytest.mark.parametrize("old", [b"other" * 100, b"x" * 300_000, b"x" * 300_001])
def test_a_wrong_part_is_thrown_away(server, tmp_path, old):
    (tmp_path / "x.bin.part").write_bytes(old)
    check(tmp_path, fetch(tmp_path, remote(server.address(Site())))[1])


def test_an_answer_of_other_bytes_than_asked_is_not_used(server, tmp_path):
    (tmp_path / "x.bin.part").write_bytes(BLOB[:1000])
    sites = [Site(content_range=f"bytes {start}") for start in ("7-299999/300000", "broken")]
    check(tmp_path, fetch(tmp_path, remote(*map(server.address, [*sites, Site()])))[1])
    assert sites[0].asked[0] == "bytes=1000-"
    assert (tmp_path / "x.bin").read_bytes() == BLOB


def test_mirrors_take_over(server, tmp_path):
    sites = [
        Site(answers=[404] * 3),
        Site(blob=BLOB[::-1]),
        Site(blob=b"<html>sorry</html>"),
        Site(cuts=[1000, 0, 0, 0, 0, 0]),
        Site(),
    ]
    check(tmp_path, fetch(tmp_path, remote("http://127.0.0.1:9/x", *map(server.address, sites)))[1])
    assert [site.asked for site in sites[:3]] == [[""] * download.TRIES] * 3
    assert sites[3].asked == ["", *["bytes=1000-"] * 5]
    assert sites[4].asked == ["bytes=1000-"]


@pytest.mark.parametrize("codes", [[503, 500], [429, 408]])
def test_passing_faults_are_tried_again(server, tmp_path, codes):
    site = Site(answers=codes)
    check(tmp_path, fetch(tmp_path, remote(server.address(site)))[1])
    assert len(site.asked) == 3


def test_the_patience_has_an_end(server, tmp_path):
    site = Site(answers=[503] * 10)
    message = refusal(RunError, tmp_path, remote(server.address(site)))
    assert " answers 503 Service Unavailable; try again, or download http" in message
    assert len(site.asked) == download.TRIES
    site = Site(ranges=False, cuts=[1000] * 10)
    message = refusal(RunError, tmp_path, remote(server.address(site)))
    assert ": the connection broke at byte 1000 of 300000; " in message
    assert len(site.asked) == 2 * download.TRIES  # the first one gained something


def test_a_server_that_says_nothing(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT", 0.1)
    site = Site(hangs=1)
    check(tmp_path, fetch(tmp_path, remote(server.address(site)))[1])
    assert len(site.asked) == 2


def test_a_wrong_checksum_is_refused_and_not_kept(server, tmp_path):
    site = Site(blob=BLOB[::-1])
    message = refusal(RunError, tmp_path, remote(server.address(site)))
    md5 = [hashlib.md5(blob).hexdigest() for blob in (site.blob, BLOB)]
    assert f"expected md5:{md5[1]} but got {md5[0]}. " in message
    assert list(tmp_path.iterdir()) == []
    assert len(site.asked) == download.TRIES


def test_another_size_is_refused_before_the_download(server, tmp_path):
    message = refusal(RunError, tmp_path, remote(server.address(Site(blob=BLOB + b"!"))))
    assert "x.bin: has 300001 bytes, 300000 expected; " in message
    assert list(tmp_path.iterdir()) == []


def test_no_more_is_taken_than_the_file_has(server, tmp_path):
    check(
        tmp_path,
        fetch(tmp_path, remote(server.address(Site(blob=BLOB + b"!" * 10**6, length=False))))[1],
    )


def test_without_network_one_line_says_what_to_do(tmp_path, monkeypatch, server):
    remotes = [remote("http://127.0.0.1:9/a", name="a"), remote("http://127.0.0.1:9/b", name="b")]
    assert refusal(RunError, tmp_path, *remotes) == (
        "set: http://127.0.0.1:9/a cannot be reached (Connection refused); try again, or download "
        f"http://127.0.0.1:9/a http://127.0.0.1:9/b and put them into {tmp_path}"
    )


def test_a_download_that_fails_leaves_no_empty_folder(server, tmp_path):
    refusal(RunError, tmp_path / "new" / "folder", remote("http://127.0.0.1:9/x"))
    refusal(RunError, tmp_path / "new" / "folder", remote(server.address(Site(cuts=[0] * 3))))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    refusal(RunError, tmp_path / "mine", remote("http://127.0.0.1:9/x"))
    assert (tmp_path / "mine").is_dir()
    refusal(
        RunError,
        tmp_path / "new" / "folder",
        remote(server.address(Site(cuts=[1000] * 10, ranges=False))),
    )
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == [
        "x.bin.part"
    ]  # to go on with


def test_a_file_one_folder_deeper_is_there(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "x.bin").write_bytes(BLOB)
    assert fetch(tmp_path, remote(""))[0] == [tmp_path / "set" / "x.bin"]
    (tmp_path / "set" / "x.bin").write_bytes(b"mine")
    with pytest.raises(InputError, match=r"set/x.bin: not the official file"):
        fetch(tmp_path, remote(""))


def test_a_file_of_that_name_is_not_overwritten(server, tmp_path):
    (tmp_path / "x.bin").write_bytes(b"mine")
    site = Site()
    with pytest.raises(
        InputError,
        match=r"x.bin: not the official file \(MD5 .*, .* expected\); move it away first",
    ):
        fetch(tmp_path, remote(server.address(site)))
    assert (tmp_path / "x.bin").read_bytes() == b"mine"
    assert site.asked == []


def test_a_file_that_was_compressed_anew_is_as_good(tmp_path):
    published = replace(remote(), content_md5=hashlib.md5(b"content").hexdigest())
    (tmp_path / "x.bin").write_bytes(gzip.compress(b"content", 1))
    assert fetch(tmp_path, published)[0] == [tmp_path / "x.bin"]
    for blob in (gzip.compress(b"other"), gzip.compress(b"content")[:-1], b"content"):
        (tmp_path / "x.bin").write_bytes(blob)
        with pytest.raises(InputError, match="not the official file"):
            fetch(tmp_path, published)


def test_a_target_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for target in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match=f"{target}: cannot be used"):
            fetch(target, remote(""))


def test_names(tmp_path):
    assert call(["data", "get", "cifar", "--path", str(tmp_path)]) == 2
    with pytest.raises(InputError) as error:
        get(pacs.PUBLISHED, tmp_path)
    for word in (
        "https://domaingeneralization.github.io",
        "<domain>/<class>/<image>",
        "art_painting",
        str(tmp_path),
    ):
        assert word in str(error.value)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_mistyped_name_is_corrected(capsys):
    assert call(["data", "get", "cifar"]) == 2
    assert "data set = 'cifar' is unknown; did you mean 'cifar10'" in capsys.readouterr().err


def test_the_command_downloads_and_says_where(server, tmp_path, monkeypatch, capsys):
    published = replace(mnist.PUBLISHED, files=[remote(server.address(Site()))])
    monkeypatch.setitem(
        DATASETS, "rotated-mnist", replace(DATASETS["rotated-mnist"], published=published)
    )
    for name in ("rotated-mnist", "mnist"):
        assert call(["data", "get", name, "--path", str(tmp_path)]) == 0
        shown = capsys.readouterr()
        assert shown.out == f"{tmp_path / 'x.bin'}\n"
        assert shown.err == ""
    check(tmp_path)


def test_the_official_files():
    published = [mnist.PUBLISHED, cifar.PUBLISHED_10, cifar.PUBLISHED_100]
    assert [len(one.files) for one in published] == [4, 1, 1]
    assert not any(one.by_hand for one in published)
    files = [file for one in published for file in one.files]
    for file in files:
        assert re.fullmatch("[0-9a-f]{32}", file.md5)
        assert file.size > 0
        for address in file.addresses:
            assert address.startswith("https://")
            assert address.endswith("/" + file.name)
    assert len({file.md5 for file in files}) == len(files)
    assert all(len(file.addresses) == 2 for file in mnist.PUBLISHED.files)


@pytest.mark.parametrize("published", mnist.PUBLISHED.files, ids=lambda file: file.name)
@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data is not here")
def test_mnist_that_is_here_is_not_downloaded(published):
    paths = get(Published("one", [replace(published, addresses=())]), SHARED / "mnist")
    assert paths == [SHARED / "mnist" / published.name]


def test_importing_connects_to_nothing(monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", None)
    monkeypatch.setattr(socket.socket, "connect", None)
    for name in ("download", "unpack", "files", "cache", "readers", "published"):
        again = f"fedbr.data.{name}_again"
        spec = importlib.util.spec_from_file_location(
            again, Path(download.__file__).with_name(f"{name}.py")
        )
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, again, module)
        spec.loader.exec_module(module)
