"""SGLang: the commands that serve a model on one host or many, and their rank map."""
