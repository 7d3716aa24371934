"""``parc calibrate``: fit parameters of the cost model to step times that the user measured."""
