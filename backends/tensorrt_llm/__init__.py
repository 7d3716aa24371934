"""TensorRT-LLM: the commands and the configuration that serve a model with trtllm-serve."""
