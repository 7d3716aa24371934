"""Peak device memory of one rank, term by term."""
