"""The rank map: CSV and JSON for programs, one page of Markdown for a reviewer."""
