"""Bytes in words."""


def size(number: int) -> str:
    """Bytes with a binary unit; as many digits as tell it from its neighbours, two at most.

    >>> size(656), size(393216), size(27525120)
    ('656 B', '384 KiB', '26.25 MiB')
    """
    value = float(number)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:,.2f}".rstrip("0").rstrip(".") + f" {unit}"


def count(number: int, word: str) -> str:
    """``1 page``, ``2 pages``.

    >>> count(1, "page"), count(2000, "page")
    ('1 page', '2,000 pages')
    """
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"
