"""Screenshots of what people look at, by Chromium (Debian's package)."""

import tempfile
from pathlib import Path

from shell import run, say

# How tall each page is at this width, in the order in which they are taken. Drawing takes the cores from training, which
# the page would show at once.
WIDTH = 1300
HEIGHTS = {"page": 870, "overview": 1470, "replay": 1450, "actors": 1080, "learner": 1410}
# What consoles show, in seconds. Pictures are worth taking when the cluster is as old.
SPAN_SECONDS = 300
QUIET = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--virtual-time-budget=8000",
]


def take(folder, consoles, page):
    """Into a folder, the four consoles of a Prometheus and the learner's own page, by their addresses."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, height in HEIGHTS.items():
        url = page if name == "page" else f"{consoles}/consoles/{name}.html?range={SPAN_SECONDS}"
        picture = folder / f"{name}.png"
        with tempfile.TemporaryDirectory() as profile:
            run("chromium", *QUIET, f"--user-data-dir={profile}", f"--window-size={WIDTH},{height}",
                f"--screenshot={picture}", url)
        say(f"{picture} ({picture.stat().st_size / 1e3:.0f} kB)")
