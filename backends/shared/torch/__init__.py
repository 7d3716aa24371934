"""Parts that the PyTorch frameworks share: mesh, rules, variants, programs."""
