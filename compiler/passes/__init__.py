"""One verb a file: a pass takes nouns and returns a noun; the sink is its only effect."""
