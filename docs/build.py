"""Build the site: pages and figures into out/pages, and from these the HTML into out/site. `make docs` runs it.

A warning of MkDocs is an error, and so is a broken link. Nothing is fetched, neither to build nor to read the site.
"""

import logging
import multiprocessing
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import tyro
from mkdocs.commands.build import build
from mkdocs.config import load_config

import ropewalk as rw
from encoding_pages import write_encoding_page
from link_check import find_faults
from page_engine import HERE, ROOT, write_page

FOLDERS = {"pages": ".", "studies": "studies", "theory": "theory"}
"""Where the pages of a folder of docs/ are in the site."""


def main(*, out: Path = ROOT / "out") -> None:
    """Build the documentation and print where it is.

    Args:
        out: The folder for pages/, which is removed first, and site/.
    """
    pages, site = out / "pages", out / "site"
    shutil.rmtree(pages, ignore_errors=True)
    write_pages(pages)
    build_html(pages, site)
    if found := find_faults(site):
        raise SystemExit("\n".join(found))
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    print(f"{site / 'index.html'} ({len(list(site.rglob('*.html')))} pages, {size / 2**20:.0f} MB)")


def list_sources(pages: Path) -> dict[Path, Path]:
    """Every page of docs/ with the file that it is rendered to."""
    roots = {HERE / folder: pages / place for folder, place in FOLDERS.items()}
    return {source: place / source.relative_to(root) for root, place in roots.items() for source in root.rglob("*.md")}


def write_pages(pages: Path) -> None:
    """All pages with their figures, by as many processes as there are cores."""
    for folder, place in (("images", "images"), ("pages/assets", "assets")):
        shutil.copytree(HERE / folder, pages / place)
    (pages / "encodings").mkdir()
    forked = multiprocessing.get_context("forkserver")
    forked.set_forkserver_preload(["page_engine"])
    sources = list_sources(pages)
    last = HERE / "theory" / "index.md"  # lists the verdicts of the others
    with ProcessPoolExecutor(os.cpu_count(), mp_context=forked) as pool:
        jobs = [pool.submit(write_page, source, target) for source, target in sources.items() if source != last]
        jobs += [pool.submit(write_encoding_page, name, pages / "encodings") for name in rw.names()]
        for job in jobs:
            job.result()
    write_page(last, sources[last])


def build_html(pages: Path, site: Path) -> None:
    """Make the site from its pages. Warnings of MkDocs are printed and, in the end, raised as an error."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    config = load_config(str(ROOT / "mkdocs.yml"), docs_dir=str(pages), site_dir=str(site))
    extend_navigation(config.nav, pages)
    config.plugins.on_startup(command="build", dirty=False)
    build(config)
    config.plugins.on_shutdown()


def extend_navigation(nav: list, pages: Path) -> None:
    """Add the pages of encodings and of studies to their sections."""
    sections = {title: entries for entry in nav for title, entries in entry.items() if isinstance(entries, list)}
    sections["Encodings"] += [{name: f"encodings/{name}.md"} for name in rw.names()]
    sections["Studies"] += [f"studies/{path.name}" for path in sorted((pages / "studies").glob("*.md"))]


if __name__ == "__main__":
    tyro.cli(main)
