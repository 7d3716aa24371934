"""Cost model: closed formulas for memory and time of a layout, each with its source."""
