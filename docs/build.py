"""Build the site: pages and figures into out/pages, and from these the HTML into out/site. `make docs` runs it.

A warning of MkDocs is an error, and so is a link that leads nowhere. Nothing is fetched, now or when the site is read.
"""

import itertools
import logging
import multiprocessing
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import tyro
from mkdocs.commands.build import build
from mkdocs.config import load_config

import context
import drawings
import equivariance
import equivariance_figures
import gallery
import handwritten
import links
import longer
import overview
import papers
import pedestrians
import pedestrians_figures
import reports
import ropewalk as rw
import speed
import theorems
import volumes
import volumes_figures
from ropewalk.lab.figures.theme import FIGURE_THEMES

ROOT = Path(__file__).parent.parent


def main(*, out: Path = ROOT / "out") -> None:
    """Build the documentation and say where it is.

    Args:
        out: The folder for pages/, which is made anew, and site/.
    """
    pages, site = out / "pages", out / "site"
    shutil.rmtree(pages, ignore_errors=True)
    write(pages)
    html(pages, site)
    if found := links.faults(site):
        raise SystemExit("\n".join(found))
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    print(f"{site / 'index.html'} ({len(list(site.rglob('*.html')))} pages, {size / 2**20:.0f} MB)")


def write(pages: Path) -> None:
    """All pages with their figures, by as many processes as there are cores."""
    (pages / "encodings").mkdir(parents=True)
    forked = multiprocessing.get_context("forkserver")
    forked.set_forkserver_preload(["drawings"])
    with ProcessPoolExecutor(os.cpu_count(), mp_context=forked) as pool:
        told = pool.submit(papers.write, pages)
        proved = pool.submit(theorems.write, pages)
        drawn = {
            job: pool.submit(drawings.draw, *job, pages / "encodings")
            for job in itertools.product(rw.names(), FIGURE_THEMES)
        }
        handwritten.write(pages)
        reported = [pool.submit(reports.write, name, pages) for name in reports.PARTS]
        speed.draw(pages)
        longer.draw(pages)
        context.draw(pages)
        equivariance_figures.draw(pages, equivariance.found())
        volumes_figures.draw(pages, volumes.found())
        pedestrians_figures.draw(pages, pedestrians.found())
        overview.write(pages / "encodings")
        gallery.write(pages / "encodings", {name: widths.result() for (name, _), widths in drawn.items()})
        told.result()
        proved.result()
        for each in reported:
            each.result()


def html(pages: Path, site: Path) -> None:
    """The site from its pages. What MkDocs warns of is printed and, in the end, an error."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    config = load_config(str(ROOT / "mkdocs.yml"), docs_dir=str(pages), site_dir=str(site))
    section = next(entry["Encodings"] for entry in config.nav if "Encodings" in entry)
    section += [{name: f"encodings/{name}.md"} for name in rw.names()]
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    config.plugins.on_shutdown()


if __name__ == "__main__":
    tyro.cli(main)
