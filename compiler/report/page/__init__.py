"""report.html: one page with pictures, made from the plan alone."""
