"""The order of hosts: shared links, messages, candidate orders, swaps and lower bounds."""
