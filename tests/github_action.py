"""Parts for the tests of the GitHub Action: its comparison module, and a fake of the GitHub API."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import ModuleType
from typing import Any
from urllib.parse import parse_qs, urlparse

from tests.project_files import ROOT

REPOSITORY = "owner/specs"
COMMENTS = f"/repos/{REPOSITORY}/issues/7/comments"
ONE_COMMENT = f"/repos/{REPOSITORY}/issues/comments/"


def comparison() -> ModuleType:
    """Return the module ``.github/action/compare.py``, which is in no package."""
    path = ROOT / ".github" / "action" / "compare.py"
    spec = importlib.util.spec_from_file_location("parc_action_compare", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


class GitHubApi(BaseHTTPRequestHandler):
    """Comments of pull request 7, as api.github.com serves them."""

    comments: list[dict[str, Any]]
    may_write = True

    def do_GET(self) -> None:
        """Return one page of the comments."""
        url = urlparse(self.path)
        query = {name: int(value[0]) for name, value in parse_qs(url.query).items()}
        first = (query["page"] - 1) * query["per_page"]
        rows = self.comments[first : first + query["per_page"]]
        self._answer(200 if url.path == COMMENTS else 404, rows)

    def do_POST(self) -> None:
        """Add a comment of the app that the token belongs to."""
        if self.path != COMMENTS or not self.may_write:
            return self._answer(403, {})
        return self._answer(201, self.add(self._text()))

    def do_PATCH(self) -> None:
        """Replace the text of a comment."""
        number = int(self.path.removeprefix(ONE_COMMENT))
        (comment,) = (one for one in self.comments if one["id"] == number)
        comment["body"] = self._text()
        self._answer(200, comment)

    @classmethod
    def add(cls, text: str, kind: str = "Bot") -> dict[str, Any]:
        """Add a comment of a user of this kind, and return it."""
        comment = {"id": len(cls.comments) + 1, "user": {"type": kind}, "body": text}
        cls.comments.append(comment)
        return comment

    def _text(self) -> str:
        assert self.headers["Authorization"] == "Bearer secret"
        return str(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"])

    def _answer(self, status: int, document: Any) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def github_api() -> Iterator[tuple[type[GitHubApi], dict[str, str]]]:
    """Serve an empty pull request; yield (the fake, the variables of a run)."""
    fake = type("Fake", (GitHubApi,), {"comments": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), fake)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield fake, {"GITHUB_API_URL": url, "GITHUB_REPOSITORY": REPOSITORY, "TOKEN": "secret"}
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
