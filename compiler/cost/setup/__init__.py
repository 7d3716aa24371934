"""Quantities computed once per problem: rates, links, efficiency factors, stage shapes."""
