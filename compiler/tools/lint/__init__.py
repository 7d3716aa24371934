"""``parc lint``: launch scripts that somebody else wrote, judged by the rules of a spec."""
