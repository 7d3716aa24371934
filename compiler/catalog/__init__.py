"""Facts as data: an entity a file, each number with its source."""
