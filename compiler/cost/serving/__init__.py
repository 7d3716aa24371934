"""Times, memory and capacity of a serving deployment."""
