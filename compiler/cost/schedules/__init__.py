"""Pipeline schedules: action tables, closed forms, simulation."""
