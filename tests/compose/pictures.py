"""Takes screenshots of the web pages with Chromium (Debian's package)."""

import tempfile
from pathlib import Path

from shell import run, say

# Height of each page at this width, in the order of the screenshots. The live page comes first: rendering uses the cores of
# training, which the live page would show.
WIDTH = 1300
HEIGHTS = {"page": 870, "overview": 1470, "replay": 1450, "actors": 1080, "learner": 1410}
# Time range of the consoles, in seconds. The cluster must have run at least this long.
SPAN_SECONDS = 300
QUIET = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--virtual-time-budget=8000",
]


def take(folder, consoles, page):
    """Writes pictures of the four consoles of a Prometheus and of the learner's page into a folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, height in HEIGHTS.items():
        url = page if name == "page" else f"{consoles}/consoles/{name}.html?range={SPAN_SECONDS}"
        picture = folder / f"{name}.png"
        with tempfile.TemporaryDirectory() as profile:
            run("chromium", *QUIET, f"--user-data-dir={profile}", f"--window-size={WIDTH},{height}",
                f"--screenshot={picture}", url)
        say(f"{picture} ({picture.stat().st_size / 1e3:.0f} kB)")
