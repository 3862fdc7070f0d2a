"""Fetching against a server on this machine: complete files only, checked, recorded, enforced."""

import hashlib
import http.server
import json
import os
import stat
import threading
import urllib.error
from typing import ClassVar

import pytest

from tuplet.datasets import fetch as module
from tuplet.datasets import load
from tuplet.datasets.fetch import Remote, fetch
from tuplet.errors import InputError

CONTENT = b"graphs" * 5000


class Server(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT in ways that a path names."""

    content = CONTENT
    asked: ClassVar[list] = []

    def do_GET(self):
        Server.asked.append(self.path)
        if self.path == "/missing":
            self.send_error(404)
            return
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/whole")
            self.end_headers()
            return
        self.send_response(200)
        if self.path != "/unannounced":
            self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.wfile.write(self.content[:100] if self.path == "/cut" else self.content)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    Server.content, Server.asked = CONTENT, []
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_address[1]}"
    httpd.shutdown()
    httpd.server_close()
    thread.join()


def sha(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("path", ["/whole", "/unannounced", "/moved"])
def test_fetched_recorded_and_not_fetched_again(server, tmp_path, path):
    steps = []
    target = tmp_path / "deep" / "file.bin"
    remote = Remote(server + path)
    assert fetch("set", remote, target, lambda done, total: steps.append((done, total))).read_bytes() == CONTENT
    assert steps[-1][0] == len(CONTENT)
    record = json.loads((tmp_path / "deep" / "file.bin.json").read_text())
    assert record["bytes"] == len(CONTENT)
    assert record["url"] == remote.url
    asked = len(Server.asked)
    assert fetch("set", remote, target).read_bytes() == CONTENT
    assert len(Server.asked) == asked
    assert sorted(os.listdir(tmp_path / "deep")) == ["file.bin", "file.bin.json"]


def test_a_cut_transfer_leaves_nothing(server, tmp_path):
    with pytest.raises(InputError, match=r"set: expected 30,000 bytes from .*; came 100; they were not kept"):
        fetch("set", Remote(server + "/cut"), tmp_path / "file.bin")
    assert os.listdir(tmp_path) == []


def test_a_wrong_length_or_checksum_leaves_nothing(server, tmp_path):
    with pytest.raises(InputError, match="expected 7 bytes"):
        fetch("set", Remote(server + "/unannounced", size=7), tmp_path / "file.bin")
    with pytest.raises(InputError, match="another checksum; it was not kept"):
        fetch("set", Remote(server + "/whole", checksum=sha(b"other")), tmp_path / "file.bin")
    assert os.listdir(tmp_path) == []
    md5 = "md5:" + hashlib.md5(CONTENT).hexdigest()
    assert fetch("set", Remote(server + "/whole", checksum=md5), tmp_path / "file.bin").exists()


@pytest.mark.parametrize("damage", [lambda content: content[:-1], lambda content: b"G" + content[1:]])
def test_an_altered_file_is_fetched_again(server, tmp_path, damage):
    target = tmp_path / "file.bin"
    fetch("set", Remote(server + "/whole"), target)
    target.write_bytes(damage(CONTENT))
    with pytest.warns(UserWarning, match="is not the file that was fetched"):
        fetch("set", Remote(server + "/whole"), target)
    assert target.read_bytes() == CONTENT


def test_what_was_recorded_is_enforced(server, tmp_path):
    """Once the publisher's file was recorded, another one under the same address is refused until the record is deleted."""
    target = tmp_path / "file.bin"
    fetch("set", Remote(server + "/whole"), target)
    target.unlink()
    Server.content = b"other" * 6000
    with pytest.raises(InputError, match=r"that was recorded in .*file.bin.json; came another, which was not kept"):
        fetch("set", Remote(server + "/whole"), target)
    assert not target.exists()
    (tmp_path / "file.bin.json").unlink()
    assert fetch("set", Remote(server + "/whole"), target).read_bytes() == Server.content


def test_a_broken_record_is_told(server, tmp_path):
    (tmp_path / "file.bin.json").write_text("{")
    with pytest.raises(InputError, match="expected the record of a fetched file"):
        fetch("set", Remote(server + "/whole"), tmp_path / "file.bin")


def test_a_file_put_there_by_hand_needs_a_known_checksum(server, tmp_path):
    target = tmp_path / "file.bin"
    target.write_bytes(CONTENT)
    fetch("set", Remote(server + "/whole", checksum=sha(CONTENT)), target)
    assert Server.asked == []
    fetch("set", Remote(server + "/whole"), target)
    assert Server.asked == ["/whole"]


def test_no_answer_is_one_sentence_with_both_ways_out(server, tmp_path):
    for url in (server + "/missing", "https://nowhere.invalid/file"):
        with pytest.raises(InputError) as caught:
            fetch("set", Remote(url), tmp_path / "file.bin")
        sentence = str(caught.value)
        assert "data=" in sentence
        assert "TUPLET_DATA" in sentence
        assert "network" in sentence
        assert url in sentence
        assert "\n" not in sentence
    assert os.listdir(tmp_path) == []


def test_only_https_and_no_way_down(tmp_path):
    with pytest.raises(InputError, match=r"url: expected an https address; came http://example\.org/file"):
        fetch("set", Remote("http://example.org/file"), tmp_path / "file.bin")
    handler = module._NoDowngrade()
    request = module.urllib.request.Request("https://example.org/file")
    with pytest.raises(urllib.error.URLError, match="leads away from https"):
        handler.redirect_request(request, None, 302, "moved", {}, "http://example.org/file")


def test_certificates_are_verified(tmp_path, monkeypatch):
    """The context given to urllib checks certificates and host names."""
    seen = []
    create = module.ssl.create_default_context

    def spy():
        seen.append(create())
        return seen[-1]

    monkeypatch.setattr(module.ssl, "create_default_context", spy)
    with pytest.raises(InputError, match="neither"):
        fetch("set", Remote("https://nowhere.invalid/file"), tmp_path / "file.bin")
    assert seen[0].verify_mode == module.ssl.CERT_REQUIRED
    assert seen[0].check_hostname


def test_too_large_is_refused(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LIMIT", 1000)
    with pytest.raises(InputError, match="at most 1,000 bytes"):
        fetch("set", Remote(server + "/whole"), tmp_path / "file.bin")
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_made(server, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="a folder that can be written"):
        fetch("set", Remote(server + "/whole"), tmp_path / "file" / "x.bin")


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder(server, tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(InputError, match="a folder that can be written"):
        fetch("set", Remote(server + "/whole"), tmp_path / "x.bin")
    tmp_path.chmod(stat.S_IRWXU)


@pytest.mark.parametrize("name", ["molhiv", "alchemy", "webkb-texas"])
def test_named_data_sets_say_both_ways_out(name, monkeypatch):
    def offline(url):
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr(module, "_open", offline)
    with pytest.raises(
        InputError, match=f"{name}: expected a packed folder .* or a network that reaches https://.*no route"
    ):
        load(name)
