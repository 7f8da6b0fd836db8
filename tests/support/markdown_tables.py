"""Tables of Markdown, read again."""


def cells(table):
    """Rows by their first cell, each by the heads of columns."""
    head, _, *rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}
