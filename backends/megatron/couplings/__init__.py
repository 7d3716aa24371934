"""Tables of Megatron's flags that need or exclude another flag."""
