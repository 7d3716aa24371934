"""From a user's own measurements to the parameters of the cost model."""
