"""Which host gets which node rank: shared links, messages, orders to try, bounds."""
