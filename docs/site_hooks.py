"""What ``make docs`` does beyond mkdocs.yml: pages from files outside docs/, links that hold on the site, one check."""

import ast
import logging
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

logger = logging.getLogger("mkdocs.hooks.statehal")  # a warning fails the build

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"index.md": ROOT / "README.md", "contributing.md": ROOT / "CONTRIBUTING.md"}
LINK = re.compile(r"\[([^]]+)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages whose text stands outside docs/."""
    for name, path in PAGES.items():
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links from file to file, which hold in the repository, to the pages made of them.

    Of a file that is no page, such as an example's, the path is left.
    """
    here = Path(page.file.abs_src_path or "").parent
    pages = {Path(file.abs_src_path).resolve(): file.src_uri for file in files if file.abs_src_path}

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match.groups(default="")
        path = (here / target).resolve()
        if path in pages:
            return f"[{text}]({get_relative_url(pages[path], page.file.src_uri)}{anchor})"
        return f"`{path.relative_to(ROOT)}`" if path.exists() else match.group()

    return LINK.sub(link, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> None:
    """Warn of public names that a page of the reference lacks: they have no docstring, or a module has their name."""
    for module in re.findall(r"^::: ([\w.]+)", page.markdown or "", re.MULTILINE):
        for name in public_names(module):
            if not re.search(rf'(id|href)="[^"]*\.{name}"', html):
                logger.warning("%s lacks %s.%s", page.file.src_uri, module, name)


def public_names(module: str) -> list[str]:
    """``__all__`` of a package, read without importing it; nothing of a module."""
    source = ROOT / "core" / module.replace(".", "/") / "__init__.py"
    for node in ast.parse(source.read_text(encoding="utf-8") if source.exists() else "").body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                names: list[str] = ast.literal_eval(value)
                return names
    return []
