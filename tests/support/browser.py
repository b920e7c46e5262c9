"""A headless Chromium that is controlled by the Chrome DevTools Protocol over a pipe: it opens a page at a given width,
reports the console's output, runs scripts and takes pictures. It knows no page.
"""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ANSWER_TIMEOUT = 60


class Browser:
    """One browser process with one page at a time."""

    def __init__(self):
        # A child process of the browser may still write for a moment after the browser has ended.
        self.profile = tempfile.TemporaryDirectory(prefix="poolhouse-browser-", ignore_cleanup_errors=True)
        to_browser, self.write = os.pipe()
        self.read, from_browser = os.pipe()
        # Chromium reads from descriptor 3 and writes to descriptor 4.
        command = [PROGRAM, "--headless", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-dev-shm-usage", "--remote-debugging-pipe",
                   f"--user-data-dir={self.profile.name}", *(["--no-sandbox"] if os.geteuid() == 0 else []), "about:blank"]
        shell = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self.process = subprocess.Popen(["bash", "-c", shell, "browser", *command], pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.events, self.session = b"", 0, [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.write)
        os.close(self.read)
        self.profile.cleanup()

    def message(self, until):
        while b"\0" not in self.buffer:
            # select() refuses numbers above 1,023, and a test that opens the browser may have thousands of sockets.
            poll = select.poll()
            poll.register(self.read, select.POLLIN)
            if not poll.poll(1000 * max(0, until - time.monotonic())):
                raise TimeoutError("the browser does not answer")
            piece = os.read(self.read, 1 << 20)
            if not piece:
                raise ConnectionError("the browser has ended")
            self.buffer += piece
        text, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(text)

    def call(self, method, **params):
        self.number += 1
        wanted = self.number
        order = {"id": wanted, "method": method, "params": params, **({"sessionId": self.session} if self.session else {})}
        os.write(self.write, json.dumps(order).encode() + b"\0")
        until = time.monotonic() + ANSWER_TIMEOUT
        while True:
            message = self.message(until)
            if message.get("id") == wanted:
                assert "error" not in message, message["error"]
                return message["result"]
            self.events.append(message)

    def wait_for(self, event):
        until = time.monotonic() + ANSWER_TIMEOUT
        while not any(seen.get("method") == event for seen in self.events):
            self.events.append(self.message(until))

    def open(self, path, width=1400, height=900, dark=False, script=True):
        """Loads a file, or an address that begins with http, and waits until the page has settled."""
        # Requests of the page before that are still open do not count for this one.
        self.events.clear()
        self.call("Page.navigate", url="about:blank")
        self.wait_for("Page.loadEventFired")
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        is_file = not str(path).startswith("http")
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri() if is_file else str(path))
        self.wait_for("Page.loadEventFired")
        if script:
            self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, script):
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def complaints(self):
        """The console's output, uncaught errors, and violations of the content security policy."""
        found = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append(" ".join(str(one.get("value", one.get("description"))) for one in params["args"]))
            elif method == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
        return found

    def requests(self):
        """The addresses that were fetched, without `data:`."""
        urls = [event["params"]["request"]["url"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith("data:")]

    def key(self, name):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name)

    def picture(self, path):
        """A PNG of the whole page."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        pathlib.Path(path).write_bytes(base64.b64decode(shot["data"]))
