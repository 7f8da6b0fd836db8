"""Faults of a built site: links that lead nowhere, pictures without words, and what another host would have to send."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": ("src",), "img": ("src", "srcset"), "iframe": ("src",), "source": ("src", "srcset"), "link": ("href",)}


class SitePage(HTMLParser):
    """What a page links to, loads and can be linked at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors = {""}
        self.blind: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        self.loads += [found[name].split()[0] for name in LOADED.get(tag, ()) if name in found]
        if tag == "img" and "alt" not in found:
            self.blind.append(found.get("src", "without a source"))


def find_faults(site: Path) -> list[str]:
    """All faults of a site, each in a line. A server shows 404.html at any address, so that its links are absolute."""
    paths = [path for path in sorted(site.resolve().rglob("*.html")) if path.name != "404.html"]
    pages = {path: SitePage(path.read_text()) for path in paths}
    found = [(path, fault) for path, page in pages.items() for fault in _of_page(path, page, pages)]
    found += [(path, fault) for path in sorted(site.resolve().rglob("*.css")) for fault in _of_style(path.read_text())]
    return [f"{path.relative_to(site.resolve())}: {fault}" for path, fault in found]


def _of_page(path: Path, page: SitePage, pages: dict[Path, SitePage]) -> Iterator[str]:
    yield from (f"a picture has no words: {source}" for source in page.blind)
    yield from (f"loads from another host: {source}" for source in page.loads if _away(source))
    for link in sorted({*page.links, *page.loads}):
        if not _away(link) and not _leads(link, path, pages):
            yield f"a link leads nowhere: {link}"
        if "arxiv" in urlsplit(link).netloc and not re.fullmatch(r"https://arxiv\.org/abs/\d{4}\.\d{4,5}", link):
            yield f"a link to a paper must be https://arxiv.org/abs/NUMBER: {link}"


def _of_style(text: str) -> Iterator[str]:
    hosts = re.findall(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')]+)", text)
    yield from (f"loads from another host: {source}" for source in hosts)


def _away(link: str) -> bool:
    """Whether a link leaves the site; data in the link itself does not."""
    return bool(urlsplit(link).netloc) or urlsplit(link).scheme in ("http", "https", "mailto")


def _leads(link: str, path: Path, pages: dict[Path, SitePage]) -> bool:
    """Whether a local link leads to a file and, in a page, to a place in it."""
    scheme, _, place, _, anchor = urlsplit(link)
    if scheme == "data":
        return True
    target = (path.parent / unquote(place)).resolve() if place else path
    here = target in pages and unquote(anchor) in pages[target].anchors
    return here if target.suffix == ".html" else target.is_file()
