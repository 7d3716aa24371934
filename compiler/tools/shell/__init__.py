"""Read shell scripts in the order in which bash would run them, without running anything."""
