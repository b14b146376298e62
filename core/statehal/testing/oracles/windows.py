"""Where the live rows of a window lie and how a commit moves the cursor, by the table of the contract."""


def live_row(protocol: str, cursor: int, row: int, rows: int, history: int) -> int:
    """The window row of live row ``row``.

    Args:
        rows: of the window.
        history: live rows, one less than the width.
    """
    return {"ring": (cursor + row) % rows, "offset": cursor + row, "rollback": rows - history + row}[protocol]


def cursor_after(protocol: str, cursor: int, accepted: int, rows: int) -> int:
    """The cursor after a commit."""
    return {"ring": (cursor + accepted) % rows, "offset": accepted - 1, "rollback": 0}[protocol]
