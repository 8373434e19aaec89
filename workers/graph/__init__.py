"""Writes a decoder's ONNX graph from its weights, with numpy and `onnx` alone.

`read_checkpoint` (GGUF file or Hugging Face folder) → `Checkpoint` → `write_decoder` → `model.onnx` and its data.
"""
