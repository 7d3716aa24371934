"""Ray: a program that serves with vLLM in placement groups pinned to the rank map."""
