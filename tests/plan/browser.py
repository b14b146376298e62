"""A page in a headless browser: its script-free errors, and where its text and pictures come to lie."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any, Literal

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
)

# Put into a copy of the page: the boxes of everything that is drawn, as text that the dumped document carries out.
MEASURE = """
<script>
const errors = [];
window.addEventListener("error", event => errors.push(String(event.message)));
window.addEventListener("load", () => {
  const box = element => { const b = element.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; };
  const pictures = [...document.querySelectorAll("svg[role=img]")].map(svg => ({
    box: box(svg),
    title: svg.querySelector("title").textContent,
    texts: [...svg.querySelectorAll("text")].map(text => ({
      box: box(text), text: text.textContent, colour: getComputedStyle(text).fill })),
    rects: [...svg.querySelectorAll("rect[x]")].map(rect => ({
      box: box(rect), cls: rect.getAttribute("class"), colour: getComputedStyle(rect).fill })),
  }));
  const result = { pictures, errors, width: document.documentElement.scrollWidth,
    background: getComputedStyle(document.body).backgroundColor, ink: getComputedStyle(document.body).color };
  const out = document.createElement("pre");
  out.id = "measured";
  out.textContent = JSON.stringify(result);
  document.body.append(out);
});
</script>
"""


def find() -> str | None:
    """The browser's path; ``None`` where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass(frozen=True)
class Seen:
    """What the browser made of a page."""

    pictures: list[dict[str, Any]]
    errors: list[str]
    width: float
    background: str
    ink: str
    console: list[str]


def look(browser: str, page: Path, scheme: Literal["light", "dark"], folder: Path, width: int = 1100) -> Seen:
    """Load a copy of a page that measures itself."""
    copy = folder / f"measured-{scheme}.html"
    text = page.read_text(encoding="utf-8")
    copy.write_text(text.replace("</body>", f"{MEASURE}</body>"), encoding="utf-8")
    run = subprocess.run(
        [
            browser,
            *QUIET,
            f"--user-data-dir={folder / f'profile-{scheme}'}",
            f"--window-size={width},1400",
            f"--blink-settings=preferredColorScheme={1 if scheme == 'light' else 0}",
            "--dump-dom",
            copy.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "HOME": str(folder)},
    )
    found = re.search(r'<pre id="measured">(.*?)</pre>', run.stdout, re.DOTALL)
    assert found, f"the page did not load: {run.stderr[-2000:]}"
    console = [line for line in run.stderr.splitlines() if "CONSOLE" in line]
    return Seen(**json.loads(unescape(found[1])), console=console)
