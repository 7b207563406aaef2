"""The explorer without a browser: how the page is put together, and whom the server lets in."""

from __future__ import annotations

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import hotmax as hm
from hotmax.view.cli import explore
from hotmax.view.explorer import assemble, data, server
from hotmax.view.explorer.data import ExplorerData
from hotmax.view.explorer.digits import digits

SOURCES = Path(assemble.__file__).parent / "page"
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide"
TOKEN, HOST = "secret", "127.0.0.1:4242"


# --- the page -------------------------------------------------------------------------------------


def test_the_page_is_one_small_file_that_asks_for_nothing():
    text, policy = assemble.page_html()
    assert len(text.encode()) <= assemble.LARGEST_PAGE
    assert not re.findall(r"https?://(?!www\.w3\.org/)", text)
    assert not re.search(r'\bsrc="|@import|<link(?! rel="icon" href="data:,")', text)
    assert f'content="{policy}"' in text
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert "unsafe" not in policy
    assert "{{" not in text.partition("<script>")[0]
    served, rule = assemble.page_html(served=True)
    assert "connect-src 'self'" in rule
    assert 'data-served="served"' in served


def test_every_module_is_in_the_page_and_short():
    found = assemble.order(assemble.MAIN, [])
    assert sorted(found) == sorted(p.relative_to(SOURCES).as_posix() for p in SOURCES.rglob("*.js"))
    for path in SOURCES.rglob("*.js"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 400, path
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|\beval\b|new Function", path.read_text()
        )


def test_forms_that_are_not_read_are_refused(monkeypatch):
    for line in ("export default 3;", 'import x from "./y.js";', "export { a };"):
        monkeypatch.setattr(
            assemble, "source_text", lambda name, line=line: f"const a = 1;\n{line}\n"
        )
        with pytest.raises(ValueError, match="does not read"):
            assemble.wrapped("some.js")


def test_names_in_different_modules_stay_apart(monkeypatch):
    texts = {
        "a.js": 'import { f as g } from "./sub/b.js";\nconst own = 1;\nexport const h = g;\n',
        "sub/b.js": 'import * as c from "../c.js";\nconst own = 2;\nexport function f() {}\n',
        "c.js": "export class K {}\n",
    }
    monkeypatch.setattr(assemble, "source_text", texts.__getitem__)
    code = assemble.script("a.js")
    assert re.findall(r'^modules\["(.*?)"\]', code, re.M) == ["c.js", "sub/b.js", "a.js"]
    assert 'const { f: g } = modules["sub/b.js"];' in code
    assert 'const c = modules["c.js"];' in code


def test_links_to_the_guide_are_to_pages_that_exist():
    """Each panel names one page; where the guide is written, it has them all."""
    pages = re.findall(r'page: "([\w-]+)"', assemble.source_text("guide.js"))
    assert len(pages) == len(set(pages)) == 10
    if GUIDE.is_dir():
        assert {f"{page}.md" for page in pages} <= {path.name for path in GUIDE.iterdir()}
    names = re.findall(r'help: "hm\.([\w.]+)"', assemble.source_text("guide.js"))
    for name in names:
        thing = hm
        for part in name.split("."):
            thing = getattr(thing, part)
        assert thing.__doc__


def test_the_digits_are_those_of_the_demo():
    from hotmax.view import demo

    logits, labels = digits()
    found = demo.predictions()
    np.testing.assert_array_equal(labels, found.labels)
    # Half a step of 1 / 1024, and the last digits of another machine's matrix products.
    np.testing.assert_allclose(logits, found.logits, atol=0.51 / 1024)


# --- the server -----------------------------------------------------------------------------------


def call(app, path="/", *, method="GET", headers=None, body=(b"",), query="token=secret"):
    """One request to an ASGI application: (status, headers, body)."""
    given = {"host": HOST, "x-hotmax-token": TOKEN, **(headers or {})}
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "root_path": "",
        "query_string": query.encode(), "scheme": "http", "http_version": "1.1",
        "server": ("127.0.0.1", 4242), "client": ("127.0.0.1", 5),
        "headers": [(k.encode(), v.encode()) for k, v in given.items() if v is not None],
    }  # fmt: skip
    parts, sent = list(body), []

    async def receive():
        part = parts.pop(0) if parts else b""
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message):
        sent.append(message)

    # In a thread: the browser of other tests leaves an event loop running in this one.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(app(scope, receive, send))).result()
    headers = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(m.get("body", b"") for m in sent[1:])


@pytest.fixture
def app(tmp_path, rng):
    x = rng.normal(size=(40, 5)) * 3
    np.savez(tmp_path / "five.npz", logits=x, labels=np.arange(40) % 5)
    explorer = server.Explorer(
        ExplorerData(hm.io.read(tmp_path / "five.npz"), "five.npz", "five.npz")
    )
    return server.application(explorer, TOKEN, lambda: 4242)


def test_the_page_is_served_with_its_policy(app):
    status, headers, body = call(app, headers={"x-hotmax-token": None})
    assert status == 200
    assert body.decode() == assemble.page_html(served=True)[0]
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "127.0.0.1"},
        {"host": "127.0.0.1:80"},
        {"host": "127.0.0.1:4242.evil.example"},
        {"host": None},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://127.0.0.1:4242"},
        {"origin": "http://127.0.0.1:4243"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/about"])
def test_foreign_hosts_and_origins_are_refused(app, headers, path):
    status, _, body = call(app, path, headers=headers)
    assert status == 403
    assert "error" in json.loads(body)


@pytest.mark.parametrize("given", [None, "", "wrong", "secre", "secrets", "sécret"])
def test_nobody_gets_in_without_the_token(app, given):
    query = "" if given is None else f"token={given}"
    assert call(app, "/", headers={"x-hotmax-token": None}, query=query)[0] == 403
    headers = {"x-hotmax-token": given}
    for path in ("/api/about", "/api/row", "/api/nothing", "/etc/passwd"):
        assert call(app, path, headers=headers)[0] == 403  # a token in the address does not do
    assert call(app, "/api/file", method="POST", headers=headers)[0] == 403


def test_the_own_origin_and_localhost_are_let_in(app):
    assert call(app, headers={"host": "localhost:4242"})[0] == 200
    assert call(app, "/api/about", headers={"origin": f"http://{HOST}"})[0] == 200


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/../setup.py", "/page/main.js", "/api/../x", "/five.npz", "/api/"]
)
def test_nothing_of_the_file_system_is_served(app, path):
    assert call(app, path)[0] == 404


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST", "OPTIONS"])
def test_other_methods_are_refused(app, method):
    assert call(app, "/", method=method)[0] in (403, 405)


def ask(app, question, **values):
    query = "&".join(f"{k}={v}" for k, v in values.items())
    status, _, body = call(app, f"/api/{question}", query=query)
    return status, json.loads(body)


def test_answers(app):
    x = np.random.default_rng(0).normal(size=(40, 5)) * 3  # as in the file
    status, found = ask(app, "row", row=3, temperature="0.5")
    assert status == 200
    assert found["index"] == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(found["x"], x[3])
    np.testing.assert_array_equal(found["p"], hm.softmax(x[3], temperature=0.5))
    status, found = ask(app, "row", row=3, temperature="0")
    assert {"number": "-inf"} in found["logp"]
    assert ask(app, "about")[1] == {
        "largest": server.LARGEST_UPLOAD, "name": "five.npz", "source": "five.npz", "rows": 40,
        "classes": 5, "labelled": True, "sampled": False, "step": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("question", "values", "message"),
    [
        ("row", {"row": 40, "temperature": 1}, "row must lie in 0..39, got 40"),
        ("row", {"row": -1, "temperature": 1}, "row must be an int of at least 0, got '-1'"),
        ("row", {"row": 0, "temperature": "warm"}, "temperature must be a number, got 'warm'"),
        ("row", {"row": 0, "temperature": "nan"}, "temperature must not be nan"),
        ("row", {}, "row must be an int"),
        ("sweep", {"row": 0, "classes": "1,x"}, "classes must be ints between commas"),
        ("sample", {"row": 0, "temperature": 1, "steps": "[1]"}, "steps must be a JSON object"),
        (
            "sample",
            {"row": 0, "temperature": 1, "seed": 0, "draws": 10**9},
            "draws must lie in 0..100000",
        ),
        (
            "sample",
            {"row": 0, "temperature": 1, "seed": 0, "draws": 1, "steps": '{"top_p":2}'},
            "top_p must be a number in (0, 1], or 1 for off, got 2",
        ),
    ],
)
def test_bad_questions_are_answered_in_one_line(app, question, values, message):
    status, found = ask(app, question, **values)
    assert status == 400
    assert message in found["error"]
    assert "\n" not in found["error"]
    assert call(app, "/api/row", query="x" * (server.LONGEST_ADDRESS + 1))[0] == 414


def test_uploads_up_to_the_limit(tmp_path, monkeypatch):
    explorer = server.Explorer(None)
    app = server.application(explorer, TOKEN, lambda: 4242)
    assert ask(app, "row", row=0, temperature=1) == (400, {"error": "no file is open"})

    def send(name, *body, **headers):
        status, _, answer = call(
            app, "/api/file", method="POST", query=f"name={name}", body=body, headers=headers
        )
        return status, json.loads(answer)

    status, found = send("my.csv", b"a,b\n1,2\n", b"3,4\n")
    assert (status, found["rows"], found["name"]) == (200, 2, "my.csv")
    held = explorer.folder.name
    status, found = send("../../other.csv", b"a,b\n1,oops\n")
    assert status == 400
    assert found["error"].startswith("other.csv: ")
    assert str(tmp_path.anchor) + "tmp" not in found["error"]
    assert explorer.data.name == "my.csv"  # as before
    assert send("x.pkl", b"x")[0] == 400
    assert send("empty.csv", b"")[1]["error"] == "empty.csv is empty"

    monkeypatch.setattr(server, "LARGEST_UPLOAD", 1 << 20)
    assert send("big.csv", b"x", **{"content-length": str(2 << 20)})[0] == 413
    status, found = send("big.csv", *[b"1,2\n" * 1000] * 300)  # no length was declared
    assert (status, found["error"]) == (413, "big.csv: at most 1 MiB can be opened here")
    explorer.close()
    assert not Path(held).exists()


def test_the_largest_classes_are_chosen_with_ties_by_index():
    x = np.array([1.0, 3.0, 2.0, 3.0, 2.0, 2.0])
    assert data.largest(x, 4).tolist() == [1, 3, 2, 4]
    assert data.largest(x, 6).tolist() == list(range(6))


def test_large_sets_are_sampled_unless_all_rows_are_asked_for(monkeypatch, rng, tmp_path):
    monkeypatch.setattr(data, "LIVE", 100)
    x = rng.normal(size=(90, 5)) * 3
    np.savez(tmp_path / "x.npz", logits=x, labels=np.arange(90) % 5)
    found = ExplorerData(hm.io.read(tmp_path / "x.npz"), "x.npz", "x.npz")
    assert found.about()["step"] == found.step == 5
    labels = np.arange(90) % 5
    some, every = found.calibration(2.0, False), found.calibration(2.0, True)
    assert (some["rows"], every["rows"]) == (18, 90)
    assert every["ece"] == hm.calibration.ece(x, labels, temperature=2.0)
    assert some["nll"] == hm.calibration.nll(x[::5], labels[::5], temperature=2.0)
    assert every["accuracy"] == pytest.approx(hm.calibration.accuracy(x, labels), rel=1e-12)


# --- the command ----------------------------------------------------------------------------------


def test_the_page_is_written(right, refused, folder):
    assert right("explore", "--out", "page.html") == "written: page.html\n"
    assert (folder / "page.html").read_text(encoding="utf-8") == assemble.page_html()[0]
    assert "exists already" in refused("explore", "--out", "page.html")
    right("explore", "--out", "page.html", "--force")
    assert "without a FILE" in refused("explore", "x.npz", "--out", "other.html")


def test_a_directory_of_shards_is_one_file(right, folder, monkeypatch, rng):
    x = rng.normal(size=(6, 3))
    (folder / "shards").mkdir()
    for number in range(2):
        np.savez(f"shards/{number}.npz", logits=x[3 * number :][:3], labels=[0, 1, 2])
    shown = []
    monkeypatch.setattr(explore, "serve", lambda explorer, *others: shown.append(explorer.data))
    for given in ("shards", "shards/*.npz"):
        right("explore", given)
        np.testing.assert_array_equal(shown[-1].found.logits, x)
        assert shown[-1].source == given


def test_bad_arguments_of_the_command(refused, folder, monkeypatch):
    assert "--port must lie in 0..65535, got 70000" in refused("explore", "--port", "70000")
    assert "there is no file no.npz" in refused("explore", "no.npz")
    (folder / "bad.csv").write_text("a,b\n1,oops\n")
    assert refused("explore", "bad.csv") == refused("softmax", "bad.csv")
    with explore.listening(0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port}: Address already in use" in refused("explore", "--port", port)
    monkeypatch.setitem(__import__("sys").modules, "uvicorn", None)
    assert 'pip install "hotmax[explore]"' in refused("explore")
