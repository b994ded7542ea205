"""The keeper's book: all that is alive in the ledger, held in memory, and the rules of every change.

`Book` has one method a message. Each changes memory at once and notes the rows that changed; the driver takes the
notes, makes them durable in one commit, and only then lets replies, orders and results out. So the book needs no disk
and no clock, and the same rules run on Ray and in the simulator.
"""

from wolfpack.core.book.book import Book
from wolfpack.core.book.state import Instant

__all__ = ["Book", "Instant"]
