"""The rank map: CSV, JSON and a page for a reviewer."""
