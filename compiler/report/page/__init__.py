"""report.html: a single page with figures, built only from the plan."""
