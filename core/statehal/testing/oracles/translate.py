"""What ids become, one id at a time, by the definition of the contract."""

from collections.abc import Sequence


def translated(one: int, table: Sequence[int] | None, page_size: int, multiplier: int, unit: str) -> tuple[int, int]:
    """The least and the largest id that a virtual id may become.

    They differ for negative ids alone, which become some id of page 0: languages do not agree on the remainder of a
    negative number.

    Args:
        one: the virtual id, of a token or of a page.
        table: the physical page of each virtual page; what it does not name is page 0. ``None``: the page itself.
        page_size: tokens a page.
        multiplier: of the form.
        unit: ``"tokens"`` or ``"pages"``.
    """
    tokens = unit == "tokens"
    if one < 0:
        return 0, page_size - 1 if tokens else 0
    page, place = (one // page_size, one % page_size) if tokens else (one, 0)
    if table is not None:
        page = table[page] if page < len(table) else 0
    result = page * multiplier + place
    return result, result


def objection(
    ids: Sequence[int],
    table: Sequence[int] | None,
    page_size: int,
    multiplier: int,
    unit: str,
    found: Sequence[int],
) -> str:
    """Which id became something else, and what; empty where none did."""
    for one, got in zip(ids, found, strict=True):
        least, most = translated(one, table, page_size, multiplier, unit)
        if not least <= got <= most:
            wanted = str(least) if least == most else f"an id of page 0, {least} to {most}"
            return (
                f"id {one} of {unit} (page size {page_size}, multiplier {multiplier}, table {table}) became {got}, "
                f"expected {wanted}"
            )
    return ""
