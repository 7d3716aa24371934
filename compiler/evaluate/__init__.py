"""A single layout or serving layout: the rules that it must satisfy, and its full estimate."""
