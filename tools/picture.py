"""The README's picture of a search from its replay, light and dark: `python tools/picture.py RUN docs/pictures/live`.

It needs Playwright and Chromium. The pictures in the repository are of `shoal search --demo --recipes 240 --seeds 1`.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from shoal.live.page import write_replay
from shoal.runs.kinds import read_run

SIZE = {"width": 1120, "height": 780}
COLOURS = 128  # of the picture: it stays small
HIDDEN = ".player, #live-to-report { visibility: hidden !important; }"


def draw(run: Path, stem: Path) -> None:
    with tempfile.TemporaryDirectory() as place, sync_playwright() as running:
        replay = write_replay(read_run(run), Path(place) / "replay.html")
        browser = running.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = browser.new_context(viewport=SIZE, color_scheme=scheme, device_scale_factor=2).new_page()
            page.goto(replay.as_uri())
            page.add_style_tag(content=HIDDEN)
            page.wait_for_timeout(6000)  # until the final model has lit up
            file = stem.with_name(f"{stem.name}-{scheme}.png")
            page.screenshot(path=file)
            Image.open(file).convert("RGB").quantize(COLOURS).save(file, optimize=True)
            print(f"saved {file} ({file.stat().st_size / 1e3:.0f} kB)")


draw(Path(sys.argv[1]), Path(sys.argv[2]))
