"""Prompts that are long enough for stored blocks, and begin with the same text."""

TEXT = """
The harbour of Lower Ebb has two basins. The old one was dug by hand and holds small boats; at low water they lie on the
mud, and their owners walk to them. The new one has a gate, which the keeper closes two hours after high water, so that
the ships behind it stay afloat. In the keeper's office hangs a table with the times of the tides for the year, and
beside it a book in which every ship is entered: its name, its length, what it carries and when it came. A ship of less
than ten metres pays four crowns a night, a longer one nine, and whoever helps with the gate pays nothing. On the first
Sunday in May the basin is drained and cleaned. Everybody comes, because of what is found: anchors, spoons, a bicycle
each year, and once a bell, which hangs in the school now. The keeper notes all of it on the last page. Ferries leave
from the outer quay at seven, at noon and at six, but not on the day of the cleaning, when their captains stand in the
mud like all the others. In winter the gate stays open, the book is closed, and the keeper paints the railings in the
colour that was left over the year before.
"""
QUESTIONS = ("What does a ship of nine metres pay?", "Where does the bell hang now?")
LONG_PROMPTS = tuple(" ".join([*TEXT.split(), question]) for question in QUESTIONS)
"""The second one finds the text where the first one stored it."""
