"""Generated pages and figures about the accuracy of the cost model."""
