"""Pipeline schedules: action tables, event simulation, closed formulas and chunks in flight."""
