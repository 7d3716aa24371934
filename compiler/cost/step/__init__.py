"""Time of one optimizer step, term by term."""
