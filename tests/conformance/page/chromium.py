"""Chromium without a window, controlled through its DevTools protocol over two pipes.

The pipes are file descriptors 3 and 4 of Chromium; each message is JSON text that ends with a zero
byte (https://chromedevtools.github.io/devtools-protocol/, ``--remote-debugging-pipe``).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def reason_to_skip() -> str:
    """Return why the tests cannot run; empty if they can."""
    if any(map(shutil.which, PROGRAMS)):
        return ""
    return "no Chromium; tests/conformance/run installs it"


@dataclass
class Browser:
    """Open tab of Chromium; ``problems`` lists the script errors and CSP violations so far."""

    write_fd: int
    read_fd: int
    session: str = ""
    problems: list[str] = field(default_factory=list)
    _number: int = 0
    _rest: bytes = b""

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command, and return its result.

        Raises:
            RuntimeError: Chromium answers with an error, or has exited.
        """
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_fd, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])

    def wait_for(self, event: str) -> None:
        """Read messages until the event ``event`` arrives."""
        while self._read().get("method") != event:
            pass

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self.read_fd, 1 << 20)
            if not part:
                raise RuntimeError("Chromium has exited")
            self._rest += part
        text, self._rest = self._rest.split(b"\0", 1)
        message = dict(json.loads(text))
        found = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            details = found["exceptionDetails"]
            self.problems.append(details.get("exception", details).get("description", str(details)))
        if message.get("method") == "Log.entryAdded" and found["entry"]["level"] == "error":
            self.problems.append(found["entry"]["text"])
        return message

    def open(self, page: Path, width: int, height: int = 900) -> None:
        """Load ``page`` in a viewport of the given size, in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.call("Page.navigate", url=page.resolve().as_uri())
        self.wait_for("Page.loadEventFired")

    def use_media(self, kind: str, scheme: str = "light") -> None:
        """Emulate the medium ``screen`` or ``print``, in a light or dark color scheme."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=kind, features=features)

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression as JSON types; a promise is awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def press(self, key: str, text: str = "") -> None:
        """Press and release a key, such as ``Tab``, on the focused element."""
        code = {"Tab": 9, "Enter": 13, "ArrowRight": 39}.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                **more,
            )

    def set_files(self, selector: str, *files: Path) -> None:
        """Choose ``files`` in the file input that ``selector`` finds."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(one.resolve()) for one in files])

    def pdf(self) -> bytes:
        """Return the page as PDF, printed on A4."""
        answer = self.call(
            "Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69
        )
        return b64decode(answer["data"])


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start Chromium with an empty profile, and open a tab; stop it at the end."""
    program = next(found for found in map(shutil.which, PROGRAMS) if found)
    to_child, write_fd = os.pipe()
    read_fd, from_child = os.pipe()
    with tempfile.TemporaryDirectory() as profile:
        command = [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={profile}",
            "about:blank",
        ]  # fmt: skip
        # The shell gives the pipes the numbers that Chromium expects. Debian's sh duplicates only
        # file descriptors of one digit.
        chromium = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_child} 4>&{from_child}', "bash", *command],
            pass_fds=(to_child, from_child),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_child)
        os.close(from_child)
        try:
            browser = Browser(write_fd, read_fd)
            target = browser.call("Target.createTarget", url="about:blank")["targetId"]
            attached = browser.call("Target.attachToTarget", targetId=target, flatten=True)
            browser.session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "DOM"):
                browser.call(f"{domain}.enable")
            yield browser
        finally:
            os.close(write_fd)
            os.close(read_fd)
            chromium.terminate()
            chromium.wait(20)
